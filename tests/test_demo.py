"""`bytelax demo`: what it prints, writes and refuses."""

import dataclasses

import numpy as np
import pytest

import bytelax
from bytelax import checkpoints, cli, loading
from bytelax.decode.record import Origins
from bytelax.measure import demo
from bytelax.measure.demo import PLAIN, PROMPTS, STOP, Run
from bytelax.running import Result, Statistics
from tests.helpers import models_for_tests as models

NEW = 20
BLOCK = 4


def saved(directory, config):
    small = models.model(config)
    checkpoints.write(directory, small.config, small.params, layout="orbax")
    return str(directory)


@pytest.fixture(scope="module")
def made():
    """The runs of a model that has every method."""
    config = models.replace(models.BASE, decoder_input="embedding", block_size=BLOCK)
    settings, notes = demo.settings_of(model := models.model(config))
    assert notes == []
    return demo.compare(model, settings, max_new_bytes=NEW)


@pytest.mark.slow
def test_every_method_on_every_prompt(made):
    names = [run.setting.method for run in made]
    assert names == ["ar", "blt-s", "blt-dv", "blt-d", "blt-d"]
    for run in made:
        assert len(run.results) == len(PROMPTS)
        if run.setting.method != "blt-d":
            assert run.output in ("identical", "same but rounding")
        assert run.bytes_per_second > 0
        for result in run.results:
            assert len(result.origins.kind) == len(result.bytes)
            drafted = result.origins.names.count("drafted")
            assert drafted == result.stats.accepted or result.stop == "eos"
    assert all(run.stats.drafted for run in made[1:])


@pytest.mark.slow  # the demo
def test_a_block_tells_which_pass_filled_each_byte(made):
    for run in made:
        for result in run.results:
            steps = [s for s, o in zip(result.origins.step, result.origins.names, strict=True) if s]
            assert len(steps) == result.origins.names.count("drafted")
            if run.setting.method == "blt-dv":
                assert set(steps) <= {1}
            if run.setting.method == "blt-d":
                assert set(result.origins.names) == {"drafted"}
                assert 1 < max(steps) <= BLOCK


@pytest.mark.slow
def test_a_byte_transformer_shows_what_it_has(tmp_path, capsys):
    model = saved(tmp_path / "model", models.BYTE_LM)
    assert cli.main(["demo", "--model", model, "--max-new-bytes", "8"]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("method "))
    assert lines[head + 1].startswith("plain ") and lines[head + 2].startswith("early-exit")
    assert "1.00x" in lines[head + 1] and "identical" in lines[head + 2]
    assert max(len(line) for line in lines[head:]) <= 80
    assert "writes the same bytes as plain decoding, in " in lines[0]
    assert "This is a processor" in " ".join(out.split())
    assert "\x1b" not in out  # no colour where there is no terminal


def test_bad_input(tmp_path, capsys):
    model = saved(tmp_path / "model", models.BYTE_LM)
    for flags, says in (
        (["--max-new-bytes", "0"], "--max-new-bytes must be at least 1"),
        (["--max-new-bytes", "5000"], "context"),
        (["--nope"], "nope"),
    ):
        assert cli.main(["demo", "--model", model, *flags]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1
        assert says in captured.err
    assert cli.main(["demo", "--model", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.slow
def test_the_prompts_do_not_loop():
    """Greedy continuations by `tiny` end by themselves, or repeat no phrase three times."""
    model = loading.load("tiny")
    for output in bytelax.generate(model, PROMPTS, max_new_bytes=96, stop=STOP).bytes:
        phrases = {output[i : i + 12] for i in range(len(output) - 11)}
        assert max((output.count(phrase) for phrase in phrases), default=0) < 3, output


def test_notes_stand_beside_the_figures(capsys, monkeypatch):
    monkeypatch.setattr(demo, "PROMPTS", [b"x"])
    runs = [fake_run(PLAIN, b"y\xff"), fake_run(demo.Setting("eagle"), b"y\xff")]
    demo.show(runs, ["no heads"])
    shown = capsys.readouterr().out
    assert "no heads" in shown
    assert shown.count("y\\xff") == 2  # what is no text, in hexadecimal


def fake_run(setting, output):
    """A run that has written `output`."""
    figures = {
        field.name: () if field.name.endswith("_by_position") else 0
        for field in dataclasses.fields(Statistics)
    }
    stats = Statistics(**figures | {"bytes": len(output), "rounds": len(output), "seconds": 1.0})
    origins = Origins(np.ones(len(output), np.int8), np.zeros(len(output), np.int8))
    return Run(setting, "identical", [Result(0, output, "length", stats, origins=origins)], stats)
