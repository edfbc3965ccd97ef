"""Packed text: the same batches, from files that are mapped into memory and not read."""

import json

import numpy as np
import pytest

from bytelax import cli
from bytelax.training import data, documents, packed
from bytelax.training.configs import DataConfig, DataError, Source


@pytest.fixture
def text(tmp_path):
    rng = np.random.default_rng(0)
    for name in "abc":
        rows = (json.dumps({"text": f"{name} {i} {rng.integers(10**12)}"}) for i in range(60))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    return tmp_path


def batches(source, split, count=8):
    config = DataConfig(sources=(source,), window=32, batch=4, valid_fraction=0.1, prefetch=0)
    taken = data.batches(config, split=split)
    return [ids.tolist() for ids, _ in zip(taken, range(count), strict=False)]


def pack(text, *words):
    out = text / "packed"
    assert cli.main(["pack", *words, "--out", str(out), "--valid-fraction", "0.1"]) == 0
    return out


@pytest.mark.parametrize("valid", ["", "c.jsonl"])
def test_batches_are_those_of_the_text(text, valid, capsys):
    """Several epochs of them: a step of 4 windows takes 128 ids."""
    valid = str(text / valid) if valid else ""
    source = Source(str(text / "*.jsonl"), valid=valid)
    out = pack(text, str(source))
    sizes = [f"{split.bytes:,}" for split in documents.load(source, 0.1)]
    told = f"{out}: {sizes[0]} bytes to train on and {sizes[1]} bytes held out\n"
    assert capsys.readouterr().out == told
    for split, count in (("train", 80), ("valid", 8)):
        found = batches(Source(str(out)), split, count)
        assert found == batches(source, split, count) and found


def test_text_is_mapped_and_not_read(text):
    for part in packed.read(str(pack(text, str(text / "*.jsonl")))):
        assert isinstance(part.ids, np.memmap) and isinstance(part.starts, np.memmap)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{text}/a.jsonl weight=2"], "give weight=2 to bytelax train, with the directory"),
        (["{text}/nothing.txt"], "{text}/nothing.txt: no such file"),
        (["{text}/a.jsonl", "--valid-fraction", "1"], "--valid-fraction must be in [0, 1), not 1"),
        (["{text}/a.txt"], "{text}/a.txt: no document is held out: name files by valid=, cut the"),
        (["{text}/a.txt", "--valid-fraction", "0.999999"], "{text}/a.txt: every document is held"),
        (["{text}/b.txt", "--valid-fraction", "0"], "{text}/b.txt: there is no text in it"),
        (["{text}/a.jsonl", "--out", "{text}"], "{text} exists: name a new directory"),
    ],
)
def test_what_cannot_be_packed(text, words, told, capsys):
    (text / "a.txt").write_text("one document")
    (text / "b.txt").write_text("\n")
    before = sorted(text.iterdir())
    words = [word.format(text=text) for word in words]
    assert cli.main(["pack", "--out", str(text / "packed"), *words]) == 2
    assert capsys.readouterr().err.startswith(f"bytelax: {told.format(text=text)}")
    assert sorted(text.iterdir()) == before


def test_a_packed_source_has_no_settings_of_its_text(text):
    out = pack(text, str(text / "*.jsonl"))
    with pytest.raises(DataError, match="is packed: give valid="):
        batches(Source(str(out), separator="x"), "train")


def test_files_that_do_not_belong_together(text):
    out = pack(text, str(text / "*.jsonl"))
    (out / "train.starts").write_bytes(b"12345678")
    with pytest.raises(DataError, match="do not belong together"):
        batches(Source(str(out)), "train")
