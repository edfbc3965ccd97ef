"""Imports run downwards only, by the law in docs/architecture.md, which this reads."""

import ast
import graphlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = {
    "bytelax": ROOT / "bytelax",
    "bytelax_kernels": ROOT / "kernels" / "bytelax_kernels",
    "experiments": ROOT / "experiments",
}
Imports = dict[str, set[str]]  # name of a module -> names of the modules that it imports


def read_imports(packages: dict[str, pathlib.Path]) -> Imports:
    """The imports of every module among each other, those inside functions too."""
    files = {}
    for package, folder in packages.items():
        for path in folder.rglob("*.py"):
            *folders, name = path.relative_to(folder).with_suffix("").parts
            own = [] if name == "__init__" else [name]
            files[".".join([package, *folders, *own])] = path
    return {name: set(_imported(path, files)) & files.keys() for name, path in files.items()}


def _imported(path, files):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: a relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in files else node.module


def layers() -> dict[str, int]:
    """The layer of each part, from docs/architecture.md: 0 is the lowest one."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    (block,) = re.findall(r"Imports run downwards only.*?```\n(.*?)```", page, flags=re.DOTALL)
    rows = [re.sub(r"  #.*", "", line).split() for line in block.splitlines()]
    parts = [(part, -index) for index, row in enumerate(rows) for part in row]
    assert len(dict(parts)) == len(parts), "a part is in two layers"
    return dict(parts)


def part_of(module: str) -> str:
    """The part that the law names: a folder or a file of `bytelax/`, or another package."""
    package, *inside = module.split(".")
    if package != "bytelax":
        return package
    return inside[0] if inside else "bytelax"


def upward(imports: Imports, layer: dict[str, int]) -> list[str]:
    """The imports that lead to a higher layer."""
    return [
        f"{module} -> {other}"
        for module, others in sorted(imports.items())
        for other in sorted(others)
        if layer[part_of(other)] > layer[part_of(module)]
    ]


def circles(imports: Imports) -> list[str]:
    """One circle in each folder that has some, among its files and the folders in it."""
    found = []
    names = (module.split(".") for module in imports)
    folders = {tuple(name[:size]) for name in names for size in range(1, len(name))}
    for folder in sorted(folders):
        graph: Imports = {}
        for module, others in imports.items():
            own, *beside = (_within(folder, name) for name in (module, *others))
            graph.setdefault(own, set()).update({*beside} - {None, own})
        graph.pop(None, None)
        try:
            graphlib.TopologicalSorter(graph).prepare()
        except graphlib.CycleError as error:
            found.append(f"{'.'.join(folder)}: {' <- '.join(error.args[1])}")
    return found


def _within(folder, module):
    """The file or folder of this folder that a module is or lies in; None if it lies elsewhere."""
    *parts, name = [*module.split("."), "__init__"]
    if tuple(parts[: len(folder)]) != folder:
        return None
    return [*parts, name][len(folder)]


@pytest.fixture(scope="module")
def imports():
    return read_imports(PACKAGES)


def test_every_part_has_a_layer(imports):
    assert set(layers()) == {part_of(module) for module in imports}


def test_no_import_leads_upwards(imports):
    assert upward(imports, layers()) == []


def test_no_circle(imports):
    assert circles(imports) == []


def test_faults_are_seen(tmp_path):
    (tmp_path / "low").mkdir()
    for name, text in {
        "__init__.py": "",
        "high.py": "from bytelax.low import first",
        "low/__init__.py": "from bytelax.low.first import x",
        "low/first.py": "def late():\n    import bytelax.low.second",
        "low/second.py": "from bytelax.low.first import x\nfrom bytelax import high",
    }.items():
        (tmp_path / name).write_text(text)
    found = read_imports({"bytelax": tmp_path})
    assert upward(found, {"bytelax": 2, "high": 1, "low": 0}) == [
        "bytelax.low.second -> bytelax.high"
    ]
    assert [circle.split(":")[0] for circle in circles(found)] == ["bytelax", "bytelax.low"]
    init = {"bytelax.low": {"bytelax.low.first"}, "bytelax.low.first": {"bytelax.low"}}
    assert len(circles(init)) == 1
