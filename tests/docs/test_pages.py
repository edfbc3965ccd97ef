"""The Python of every page runs as it stands, from top to bottom, and its commands exist."""

import contextlib
import re

import pytest

from bytelax import cli
from tests.helpers import models_for_tests as models
from tests.helpers import pages
from tests.helpers.marks import slow

_QUICK = {"docs/calculator.md", "docs/kernels.md"}  # they compile nothing


@pytest.mark.parametrize(
    "page",
    [
        page if pages.name(page) in _QUICK else slow(page)
        for page in pages.PAGES
        if pages.blocks(page, "python")
    ],
    ids=pages.name,
)
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
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ |nohup |~/env/bin/)*(bytelax \w.*)")


def _commands():
    """Pages, and commands on them, which may be incomplete."""
    for page in pages.PAGES:
        for line in pages.code_lines(page):
            if found := _COMMAND.match(line):
                yield pages.name(page), found[1]


@pytest.mark.slow
def test_commands_have_their_flags(capsys):
    helps: dict[str, str] = {}
    unknown = []
    for page, line in _commands():
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
        for flag in re.findall(r"(?<=\s)--[\w.-]+", line.split("#")[0]):
            if not re.search(rf"{re.escape(flag)}(?![\w.-])", helps[name]):
                unknown.append(f"{page}: {line}: {flag}")
    assert len(helps) >= 8 and not unknown
