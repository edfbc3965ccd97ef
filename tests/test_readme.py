"""The examples of the README and of the page about scoring run as they stand."""

import re
import shlex
from pathlib import Path

import models_for_tests as models
import pytest

from bytelax import checkpoints, cli

_ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("readme")
    model = models.random_blt()
    checkpoints.write(path / "my-blt", model.config, model.params, layout="huggingface")
    for name in ("notes.txt", "more.txt"):
        (path / name).write_text(f"This is {name}.\n")
    return path


def _blocks(page, language):
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", (_ROOT / page).read_text(), re.DOTALL | re.M)
    return [block for named, block in blocks if named == language]


def test_the_first_examples(tmp_path, monkeypatch, capsys):
    """With a byte transformer, which takes less time to compile."""
    monkeypatch.chdir(tmp_path)
    model = models.model(models.BYTE_LM)
    checkpoints.write("my-blt", model.config, model.params, layout="huggingface")
    names: dict = {}
    for block in _blocks("README.md", "python")[:2]:
        exec(compile(block, "README.md", "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("README.md", 5), ("docs/scoring.md", 4)])
def test_examples(page, least, directory, monkeypatch, capsys):
    monkeypatch.chdir(directory)
    names: dict = {}
    blocks = _blocks(page, "python")
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    assert len(blocks) >= least
    assert capsys.readouterr().out


@pytest.mark.slow  # test_score_command.py
def test_commands_of_the_page_about_scoring(directory, monkeypatch, capsys):
    monkeypatch.chdir(directory)
    lines = [line for block in _blocks("docs/scoring.md", "") for line in block.splitlines()]
    for line in lines:
        command, *args = shlex.split(line)
        assert command == "bytelax" and cli.main(args) == 0
    assert len(lines) == 4 and capsys.readouterr().out
