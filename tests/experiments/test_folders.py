"""What a study may import, and whether the list of studies is whole."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = sorted({path.parent for path in (ROOT / "experiments").glob("*/*/*.py")})


def imported(path):
    """The dotted names of what a file imports, also inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: "/".join(f.parts[-2:]))
def test_a_study_imports_itself_the_harness_and_public_names(folder):
    own = ".".join(folder.relative_to(ROOT).parts)
    for path in folder.glob("*.py"):
        for name in imported(path):
            if name.startswith("experiments"):
                assert name.startswith((f"{own}.", "experiments.harness.")), f"{path}: {name}"
            if name.startswith("bytelax"):
                assert "._" not in name, f"{path}: {name}"


def test_the_harness_imports_no_study():
    for path in (ROOT / "experiments" / "harness").glob("*.py"):
        for name in imported(path):
            in_harness = name.startswith("experiments.harness.")
            assert in_harness or not name.startswith("experiments."), f"{path}: {name}"


def test_the_list_of_studies_is_whole():
    text = (ROOT / "experiments" / "README.md").read_text()
    for folder in FOLDERS:
        name = f"{folder.parent.name}/{folder.name}"
        assert f"]({name}/README.md)" in text or f"`{name}`" in text, folder
