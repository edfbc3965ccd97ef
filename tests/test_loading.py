"""Which model a name means."""

import pytest

import bytelax
from bytelax import checkpoints


def test_a_file_or_a_folder_of_the_name_of_a_bundled_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundled = bytelax.load("tiny-lm")
    (tmp_path / "tiny-lm").touch()
    assert bytelax.load("tiny-lm").config == bundled.config
    (tmp_path / "tiny-lm").unlink()
    (tmp_path / "tiny-lm").mkdir()
    assert bytelax.load("tiny-lm").config == bundled.config
    (tmp_path / "tiny-lm" / "config.json").write_text("{}")
    with pytest.raises(checkpoints.CheckpointError, match=r"tiny-lm has no model\.safetensors"):
        bytelax.load("tiny-lm")
