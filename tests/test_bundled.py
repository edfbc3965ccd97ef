"""The models that ship with the package."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax.cli import main
from tests.helpers.commands import refused

ROOT = pathlib.Path(__file__).parents[1]
ASSETS = ROOT / "bytelax" / "assets"
NAMES = sorted(path.name for path in ASSETS.iterdir())


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


def test_tiny_cannot_be_had_by_transformers_and_the_reason_is_given(tmp_path, capsys):
    out = ["--out", str(tmp_path / "out"), "--to", "huggingface"]
    told = refused(capsys, "convert", "--model", "tiny", *out)
    assert "cannot express decoder.window=128, decoder_input='embedding'" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "method"),
    [
        ("tiny-d", "blt-d"),
        ("tiny-d", "blt-dv"),
        ("tiny-lm", "early-exit"),
        ("tiny-lm", "eagle"),
        ("tiny-lm", "spectr"),
    ],
)
def test_methods_run_from_the_command_line(model, method, capsys):
    prompt = "The cells of the body and the cells of the"
    flags = ["generate", "--model", model, prompt, "--max-new-bytes", "12", "--json"]
    more = ["--draft-model", "tiny-draft"] if method == "spectr" else []

    def text(*options):
        assert main([*flags, *options]) == 0
        printed = json.loads(capsys.readouterr().out)
        return printed["results"][0]["base64"], printed["lossless"]

    written, lossless = text("--method", method, *more)
    assert lossless == (method != "blt-d")
    # The prompt was chosen so that no two bytes are nearly as likely.
    assert not lossless or written == text()[0]
