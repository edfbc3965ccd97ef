"""`bytelax demo`: what it prints and refuses."""

import dataclasses
import io
import math

import numpy as np
import pytest
from rich.console import Console

from bytelax import cli, generate, loading
from bytelax.decode.record import Origin, Origins
from bytelax.measure import demo
from bytelax.measure.timing import Runs
from bytelax.running import Output, Result, Statistics
from tests.helpers import models_for_tests as models
from tests.helpers.commands import refused


def written(text, kinds, seconds):
    """Runs of one prompt, whose text has these origins."""
    rounds = 1 + sum(kind != Origin.DRAFTED for kind in kinds[:-1])
    counts = {
        field.name: () if field.name.endswith("_by_position") else 0
        for field in dataclasses.fields(Statistics)
    }
    counts |= {"bytes": len(text), "rounds": rounds, "seconds": seconds}
    counts |= {"drafted": 8, "accepted": kinds.count(Origin.DRAFTED)}
    stats = Statistics(**counts)
    origins = Origins(np.array(kinds, np.int8))
    result = Result(0, text, "length", stats, origins=origins)
    return Runs([Output([result], stats, True)], (seconds,) * 3, (seconds,) * 3)


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.setattr(demo, "PROMPTS", [b"One "])
    text = "two däy\xff".encode("latin-1").replace(b"\xe4", "ä".encode())
    kinds = [Origin.DRAFTED] * 4 + [Origin.FREE] + [Origin.DRAFTED] * 3 + [Origin.CORRECTED]
    return written(text, [Origin.PLAIN] * 9, 0.09), written(text, kinds, 0.02)


def test_whole_rounds_appear_when_they_end(runs):
    plain, drafted = runs
    assert demo._written(plain, 0.0).plain == ""
    assert demo._written(plain, 0.035).plain == "One two"
    assert demo._written(plain, 0.065).plain == "One two d"  # half of the next character is there
    assert demo._written(drafted, 0.009).plain == "One "
    assert demo._written(drafted, 0.011).plain == "One two d"
    assert demo._written(drafted, math.inf).plain == "One two däy\\xff"


def test_on_a_terminal_the_texts_appear(runs):
    out = io.StringIO()
    demo.show(*runs, Console(file=out, force_terminal=True, color_system="standard", width=80))
    told = out.getvalue()
    assert told.count("plain decoding") > 2  # frames
    assert "2 passes of the model instead of 9, 4.50 times as fast" in " ".join(told.split())
    assert "drafted and kept" in told.splitlines()[-1]


def test_elsewhere_only_the_end_is_printed(runs):
    out = io.StringIO()
    demo.show(*runs, Console(file=out, width=80))
    told = out.getvalue()
    assert told.count("plain decoding") == 1 and told.count("\\xff") == 2
    assert "\x1b" not in told and "drafted and kept" not in told


@pytest.mark.slow
def test_a_model_that_drafts_for_itself(tmp_path, capsys):
    model = models.saved(models.model(models.BYTE_LM), tmp_path / "model")
    assert cli.main(["demo", "--model", model, "--max-new-bytes", "8"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert "The same bytes in " in " ".join(lines)


def test_drafters_are_those_that_the_model_has():
    def names(config):
        return [each.method for each in demo.drafters_of(models.model(config))]

    assert names(models.BYTE_LM) == ["early-exit", "lookup"]
    trained = models.replace(models.BASE, decoder_input="embedding", block_size=8)
    assert names(models.BASE) == ["blt-s", "lookup"]
    assert names(trained) == ["blt-s", "blt-dv", "lookup"]


def test_bad_input(tmp_path, capsys):
    model = models.saved(models.model(models.BYTE_LM), tmp_path / "model")
    for flags, says in (
        (["--max-new-bytes", "0"], "--max-new-bytes must be at least 1"),
        (["--max-new-bytes", "5000"], "context"),
        (["--nope"], "nope"),
    ):
        assert says in refused(capsys, "demo", "--model", model, *flags)
    assert "nowhere" in refused(capsys, "demo", "--model", str(tmp_path / "nowhere"))


@pytest.mark.slow
def test_the_prompts_do_not_loop():
    """Greedy continuations by `small-lm` end by themselves, or repeat no line of the screen."""
    model = loading.load("small-lm")
    found = generate(model, demo.PROMPTS, max_new_bytes=demo.NEW, stop=demo.STOP)
    for output in found.bytes:
        phrases = {output[i : i + 38] for i in range(len(output) - 37)}
        assert max((output.count(phrase) for phrase in phrases), default=0) < 3, output
