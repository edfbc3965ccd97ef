"""The pages that people read, and the code on them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.M)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """Blocks of code; an error in one names its line of the page."""
    text = page.read_text()
    return [
        "\n" * text[: found.start(2)].count("\n") + found[2]
        for found in _FENCED.finditer(text)
        if found[1] == language
    ]


def code_lines(page: Path) -> list[str]:
    """Lines of code that is no Python: of blocks, fenced or indented, and then within sentences."""
    text = page.read_text()
    prose = _FENCED.sub("", text)
    indented = "\n".join(re.findall(r"^    .*", prose, re.M))
    lines = "\n".join([*blocks(page, ""), indented]).replace("\\\n", " ").splitlines()
    spans = re.findall(r"`([^`]+)`", re.sub(r"\s+", " ", prose))
    return [line.strip() for line in [*lines, *spans]]


def run(code: list[str], page: Path) -> dict:
    """Runs the blocks of a page one behind another, and returns their names."""
    names: dict = {}
    for block in code:
        exec(compile(block, name(page), "exec"), names)
    return names
