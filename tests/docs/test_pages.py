"""The Python of every page runs as it stands, from top to bottom, and its commands exist."""

import contextlib
import re

import pytest

from bytelax import cli
from tests.helpers import models_for_tests as models
from tests.helpers import pages

_QUICK = {"docs/calculator.md", "docs/kernels.md"}  # they compile nothing


def _with_python() -> list:
    return [
        pytest.param(
            page,
            id=pages.name(page),
            marks=() if pages.name(page) in _QUICK else pytest.mark.slow,
        )
        for page in pages.PAGES
        if pages.blocks(page, "python")
    ]


@pytest.mark.parametrize("page", _with_python())
def test_python(page, tmp_path, monkeypatch):
    if pages.name(page) == "docs/evaluation.md":
        pytest.importorskip("lm_eval")  # `make parity` installs it
    monkeypatch.chdir(tmp_path)
    assert pages.run(pages.blocks(page, "python"), page)


def test_the_first_example_of_the_readme(tmp_path, monkeypatch, capsys):
    """With small byte transformers of these names, which take less time to compile."""
    monkeypatch.chdir(tmp_path)
    model = models.model(models.SMALLEST)
    for name in ("small-lm", "small-draft"):
        models.saved(model, name)
    readme = pages.PAGES[0]
    names = pages.run(pages.blocks(readme, "python")[:1], readme)
    assert names["model"].config == model.config and capsys.readouterr().out


# What may stand before a command: variables, and what starts it.
_BEFORE = r"(?:[A-Z_]+=\S+ |nohup |~/env/bin/)*"


def _commands(of: str, texts=pages.PAGES) -> list[tuple[str, str]]:
    """Pages, and commands on them that begin with a pattern and may be incomplete."""
    return [
        (pages.name(page), found[1])
        for page in texts
        for line in pages.code_lines(page)
        if (found := re.match(rf"{_BEFORE}({of}.*)", line))
    ]


def _unknown_flags(line: str, known: str) -> list[str]:
    """Flags of a command line that its help does not know."""
    flags = re.findall(r"(?<=\s)--[\w.-]+", line.split("#")[0])
    return [flag for flag in flags if not re.search(rf"{re.escape(flag)}(?![\w.-])", known)]


@pytest.mark.slow
def test_commands_have_their_flags(capsys):
    helps: dict[str, str] = {}
    unknown = []
    for page, line in _commands(r"bytelax \w"):
        words = line.split()
        command = words[1:3] if words[1] == "train" else words[1:2]
        if command[0] == "train" and (len(command) == 1 or "|" in line):  # a synopsis
            continue
        if "--method" in words:  # whose options the help then shows
            command += words[words.index("--method") :][:2]
        name = " ".join(command)
        if name not in helps:
            with contextlib.suppress(SystemExit):
                cli.main([*command, "--help"])
            helps[name] = capsys.readouterr().out
        unknown += [f"{page}: {line}: {flag}" for flag in _unknown_flags(line, helps[name])]
    assert len(helps) >= 8 and not unknown
