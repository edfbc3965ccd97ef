"""What a study may import, and whether the pages link to what is there."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = sorted({path.parent for path in (ROOT / "experiments").glob("*/*/*.py")})
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "experiments").rglob("*.md"),
    *(ROOT / "bytelax").rglob("*.md"),
]


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
        assert f"]({folder.parent.name}/{folder.name})" in text, folder


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_resolve(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), target
