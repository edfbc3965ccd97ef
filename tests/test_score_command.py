"""`bytelax score` and `bytelax patches`: what they print, and how they fail."""

import io
import json
import os
import sys

import numpy as np
import pytest

import bytelax
from bytelax import checkpoints, cli
from bytelax.checkpoints import layout
from tests.helpers import models_for_tests as models
from tests.helpers.commands import refused

FILES = {
    "short": b" one text\r\n",
    "not UTF-8 [bold]\udcff": b"caf\xe9 \xff\x00\x80",
    "long": bytes(range(256)) + b"\n" * 44,
}
WINDOWS = ["--window", "63", "--stride", "40", "--batch", "4"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A BLT and the files, in the current directory."""
    directory = tmp_path_factory.mktemp("score")
    for name, text in FILES.items():
        (directory / name).write_bytes(text)
    (directory / "empty").write_bytes(b"")
    (directory / "folder").mkdir()
    os.mkfifo(directory / "pipe")
    models.saved(models.model(models.BASE), directory / "blt")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        yield directory


def _lines(capsys, *args):
    assert cli.main([*args, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return [json.loads(line) for line in captured.out.splitlines()]


def test_a_line_for_each_file_and_one_for_all(place, capsys):
    *each, whole = _lines(capsys, "score", "--model", "blt", *FILES, *WINDOWS, "--logprobs")
    texts = list(FILES.values())
    model = bytelax.load("blt")
    expected = bytelax.score(model, texts, window=63, stride=40, batch=4)
    assert [line["file"] for line in each] == list(FILES)
    for line, document in zip(each, expected.documents, strict=True):
        np.testing.assert_array_equal(np.float32(line.pop("log_probs")), document.log_probs)
        assert line == {"file": line["file"], **document.to_dict()}
    assert whole == {"files": 3, **expected.to_dict()}


def test_for_a_person(place, capsys):
    assert cli.main(["score", "--model", "blt", "short", "long", *WINDOWS]) == 0
    captured = capsys.readouterr()
    names = [line.partition(" bytes: ")[2] for line in captured.out.splitlines()]
    assert names == ["short", "long", "all 2 files"]
    assert cli.main(["patches", "--model", "blt", "short", "long", *WINDOWS]) == 0
    captured = capsys.readouterr()
    assert [line.split(": ")[1] for line in captured.out.splitlines()] == ["short", "long"]


def test_standard_input(place, capsys, monkeypatch):
    def stdin():
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FILES["long"])))

    for files in ((), ("-",)):
        stdin()
        first, whole = _lines(capsys, "score", "--model", "blt", *files, *WINDOWS)
        assert first["file"] == "standard input" and whole["files"] == 1
    (named, _) = _lines(capsys, "score", "--model", "blt", "long", *WINDOWS)
    assert named["log_prob"] == first["log_prob"]
    told = refused(capsys, "score", "--model", "blt", "-")
    assert "standard input is empty" in told  # it has been read


def test_patches(place, capsys):
    each = _lines(capsys, "patches", "--model", "blt", *FILES, *WINDOWS, "--entropies")
    patcher = bytelax.load_patcher("blt")
    expected = bytelax.patches(patcher, FILES.values(), window=63, stride=40, batch=4)
    for line, name, cut in zip(each, FILES, expected, strict=True):
        count = len(FILES[name])
        assert line["file"] == name and line["bytes"] == count and line["lengths"] == cut.lengths
        assert line["bytes_per_patch"] == count / len(cut.lengths)
        np.testing.assert_array_equal(np.float32(line["entropies"]), cut.entropies)
    cut = ["--override", "max_patch_length=1"]
    (single,) = _lines(capsys, "patches", "--model", "blt", "short", *WINDOWS, *cut)
    assert single["lengths"] == [1] * len(FILES["short"])


def test_weights_and_scores_that_are_no_numbers(place, capsys, monkeypatch):
    broken = models.model(models.BASE)
    head = {"kernel": broken.params["decoder"]["head"]["kernel"].at[0, 9].set(float("nan"))}
    params = broken.params | {"decoder": broken.params["decoder"] | {"head": head}}
    checkpoints.write(place / "broken", broken.config, params, layout="huggingface")
    score = ["score", "--model", "broken", "short", *WINDOWS]
    says = "broken: the tensor lm_head.weight holds NaN or infinite values in float32; "
    assert says in refused(capsys, *score)
    monkeypatch.setattr(layout, "check_finite", lambda *_: None)
    assert "logits of text 0 are NaN or infinite" in refused(capsys, *score)


@pytest.mark.parametrize("command", ["score", "patches"])
@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["empty"], "empty is empty"),
        (["short", "empty"], "empty is empty"),
        (["missing"], "missing"),
        (["folder"], "folder is a directory"),
        (["pipe"], "pipe is not a file"),
        (["/dev/zero"], "/dev/zero is not a file"),
        ([""], "is a directory"),
        (["a\0b"], "null"),
        (["x" * 5000], "name too long"),
        (["short/short"], "Not a directory"),
        (["short", "--model", "nowhere"], "there is no directory nowhere"),
        (["short", "--model", ""], "the name of the model is empty"),
        (["short", "--model", "short"], "short is a file"),
        (["short", "--model", "folder"], "folder is empty"),
        (["short", "--window", "0"], "window must be an integer in 1.."),
        (["short", "--window", "9", "--stride", "10"], "stride must be an integer in 1..9"),
        (["short", "--stride", "-1"], "stride must be"),
        (["short", "--batch", "0"], "batch must be"),
        (["short", "--batch", "many"], "batch"),
        (["short", "--override", "nope=1"], "--override knows no 'nope'"),
        (["short", "--override", "max_bytes=1"], "max_bytes must lie in"),
        (["short", "--override", "patching_threshold=NaN"], "finite"),
    ],
)
def test_bad_input_is_one_line(place, capsys, command, args, says):
    model = [] if "--model" in args else ["--model", "blt"]
    assert says.lower() in refused(capsys, command, *model, *args).lower()


def test_flags_that_need_json(place, capsys):
    for command, flag in (("score", "--logprobs"), ("patches", "--entropies")):
        told = refused(capsys, command, "--model", "blt", "short", flag)
        assert "as JSON only: add --json" in told


def test_patches_by_a_byte_transformer_tell_the_threshold(place, capsys):
    models.saved(models.model(models.BYTE_LM), place / "lm")
    assert cli.main(["patches", "--model", "lm", "short", *WINDOWS]) == 0
    (told,) = capsys.readouterr().err.splitlines()
    assert "lm is a byte transformer" in told and "1.335 nats" in told
    _lines(capsys, "patches", "--model", "lm", "short", *WINDOWS, "--override",
           "patching_threshold=1.335")  # fmt: skip


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(place, capsys):
    (place / "secret").write_bytes(b"x")
    (place / "secret").chmod(0)
    assert "Permission denied" in refused(capsys, "score", "--model", "blt", "secret")
