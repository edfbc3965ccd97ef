"""The models that ship with the package."""

import functools
import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax.cli import main

ROOT = pathlib.Path(__file__).parents[1]
ASSETS = ROOT / "bytelax" / "assets"
NAMES = sorted(path.name for path in ASSETS.iterdir())


@functools.cache
def tiny():
    return bytelax.load("tiny")


def test_they_are_small_and_name_their_sources():
    files = [file for file in ASSETS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= 75e6
    for name in NAMES:
        card = (ASSETS / name / "README.md").read_text()
        assert "OpenStax" in card and "CC BY 4.0" in card and "Tatoeba" in card


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "tiny-draft" else pytest.mark.slow) for name in NAMES],
)
def test_they_load_in_float32(name):
    model = bytelax.load(name)
    logits = np.asarray(model.logits(jnp.asarray([bytelax.vocab.encode(b"The cell")])))
    assert logits.dtype == np.float32 and np.isfinite(logits).all()


@pytest.mark.slow
def test_tiny_has_learned_to_spell():
    """Bits per byte of English it has never seen, far below the 8 of chance."""
    ids = jnp.asarray([bytelax.vocab.encode(b"The people of the city were in the middle of it.")])
    logits = np.asarray(tiny().logits(ids), np.float64)[0, :-1]
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    scored = np.take_along_axis(log_probs, np.asarray(ids)[0, 1:, None], axis=1)
    assert -scored.mean() / np.log(2) < 3
    assert bytelax.load("tiny-d").config.block_size == 16


def test_tiny_cannot_be_had_by_transformers_and_the_reason_is_given(tmp_path, capsys):
    assert (
        main(["convert", "--model", "tiny", "--out", str(tmp_path / "out"), "--to", "huggingface"])
        == 2
    )
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot express decoder.window=128, decoder_input='embedding'" in line


RUN = {
    "ar": "tiny",
    "blt-s": "tiny",
    "blt-d": "tiny-d",
    "blt-dv": "tiny-d",
    "lookup": "tiny",
    "draft-model": "tiny",
    "early-exit": "tiny-lm",
    "layer-skip": "tiny-lm",
    "medusa": "tiny-lm",
    "two-byte": "tiny-lm",
    "eagle": "tiny-lm",
    "composed": "tiny-lm",
    "spectr": "tiny-lm",
}


def test_every_method_has_a_model():
    # No bundled model has a draft block, and what is tuned is one of the others.
    assert bytelax.options.METHODS.keys() - RUN == {"dflash", "tuned"}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["blt-d", "blt-dv", "early-exit", "eagle", "spectr"])
def test_methods_run_from_the_command_line(method, capsys):
    prompt = "The cells of the body and the cells of the"
    flags = ["generate", "--model", RUN[method], prompt, "--max-new-bytes", "12", "--json"]
    more = ["--draft-model", "tiny-draft"] if method in ("draft-model", "spectr") else []

    def text(*options):
        assert main([*flags, *options]) == 0
        printed = json.loads(capsys.readouterr().out)
        return printed["results"][0]["base64"], printed["lossless"]

    written, lossless = text("--method", method, *more)
    assert lossless == (method != "blt-d")
    # The prompt was chosen so that no two bytes are nearly as likely.
    assert not lossless or written == text()[0]
