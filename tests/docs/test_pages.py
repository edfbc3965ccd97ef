"""The Python of every page runs as it stands, from top to bottom, and its commands exist."""

import contextlib
import re
import shlex

import models_for_tests as models
import pages
import pytest

from bytelax import checkpoints, cli

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
    monkeypatch.chdir(tmp_path)
    assert pages.run(pages.blocks(page, "python"), page)


def test_the_first_example_of_the_readme(tmp_path, monkeypatch, capsys):
    """With a small byte transformer of that name, which takes less time to compile."""
    monkeypatch.chdir(tmp_path)
    model = models.model(models.BYTE_LM)
    checkpoints.write("tiny", model.config, model.params, layout="huggingface")
    readme = pages.PAGES[0]
    names = pages.run(pages.blocks(readme, "python")[:1], readme)
    assert names["tiny"].config == model.config and capsys.readouterr().out


def _commands() -> list[tuple[str, str]]:
    """Pages, and command lines on them that may be incomplete."""
    lines = [
        (pages.name(page), line.strip())
        for page in pages.PAGES
        for block in pages.blocks(page, "")
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [(page, line) for page, line in lines if re.match(r"(~/env/bin/)?bytelax \w", line)]


@pytest.mark.slow
def test_commands_have_their_flags(capsys):
    helps: dict[str, str] = {}
    unknown = []
    for page, line in _commands():
        words = line.split()
        command = words[1:3] if words[1] == "train" else words[1:2]
        if command[0] == "train" and "|" in line:  # a synopsis
            continue
        name = " ".join(command)
        if name not in helps:
            with contextlib.suppress(SystemExit):
                cli.main([*command, "--help"])
            helps[name] = capsys.readouterr().out
        for flag in re.findall(r"(?<=\s)--[\w.-]+", line.split("#")[0]):
            if not re.search(rf"{re.escape(flag)}(?![\w.-])", helps[name]):
                unknown.append(f"{page}: {line}: {flag}")
    assert len(helps) >= 8 and not unknown


@pytest.mark.slow  # test_score_command.py
def test_commands_about_scoring(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "more.txt"):
        (tmp_path / name).write_text(f"This is {name}.\n")
    lines = [line for page, line in _commands() if page == "docs/scoring.md"]
    for line in lines:
        assert cli.main(shlex.split(line)[1:]) == 0
    assert len(lines) == 4 and capsys.readouterr().out
