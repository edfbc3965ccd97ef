"""The examples of the README run as they stand."""

import re
from pathlib import Path

import models_for_tests as models
import pytest

from bytelax import checkpoints

_README = Path(__file__).parent.parent / "README.md"
_BLOCKS = re.findall(r"```python\n(.*?)```", _README.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("readme")
    model = models.random_blt()
    checkpoints.write(path / "my-blt", model.config, model.params, layout="huggingface")
    return path


def test_examples(directory, monkeypatch, capsys):
    monkeypatch.chdir(directory)
    names: dict = {}
    for block in _BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    assert len(_BLOCKS) >= 5
    assert capsys.readouterr().out
