"""A run that was stopped ends where one left alone does."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bytelax.training import runs, train_loop, train_state
from bytelax.training.train_state import TrainingError
from tests.helpers import tiny_runs
from tests.helpers.tiny_runs import NextByte, assert_same, batches, config

NOISY = NextByte(noise=0.1)


def train(out, settings=None, batches=batches, told=None):
    told = [] if told is None else told
    return runs.train(settings or config(), NOISY, batches, out, report=told.append)


def at(step, action):
    """Batches that do something before the batch of that step, counted from 1."""

    def acting(split, start):
        for number, ids in enumerate(batches(split, start), start + 1):
            if split == "train" and number == step:
                action()
            yield ids

    return acting


def stop_at(step):
    return at(step, lambda: os.kill(os.getpid(), signal.SIGTERM))


def losses(out):
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["split"], row["loss"]) for row in rows]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of 12 steps that is never stopped, nor saved on its way."""
    out = tmp_path_factory.mktemp("alone")
    return out, train(out, config(save_every=0))


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The same with checkpoints, at 3 and 6, stopped after the 7th step."""
    out = tmp_path_factory.mktemp("half")
    told = []
    result = train(out, batches=stop_at(7), told=told)
    assert (result.step, result.finished) == (7, False) and (out / "model").is_dir()
    assert "run the same command again" in told[-1]
    return out


@pytest.fixture
def stopped(half, tmp_path):
    return pathlib.Path(shutil.copytree(half, tmp_path / "run"))


def test_an_interrupted_run_resumes_bit_for_bit(alone, stopped):
    """Where a checkpoint was half written, too."""
    out, whole = alone
    told, saved = [], stopped / "checkpoints"
    shutil.copytree(saved / "7", saved / "8.orbax-checkpoint-tmp")
    resumed = train(stopped, told=told)
    assert "going on from step 7" in told
    assert_same(resumed.params, whole.params)
    assert losses(stopped) == losses(out)
    assert resumed.valid == whole.valid


@pytest.mark.slow  # like an interrupted one
def test_a_killed_run_resumes_bit_for_bit(alone, tmp_path):
    _, whole = alone
    script = [sys.executable, tiny_runs.__file__, str(tmp_path), "--pace", "0.3"]
    with subprocess.Popen(script, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "checkpoints" / "3").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.4)
        process.kill()
    steps = [step for step, _, _ in losses(tmp_path)]
    assert max(steps) < 12
    told = []
    resumed = train(tmp_path, told=told)
    assert any("going on from step" in line for line in told)
    assert_same(resumed.params, whole.params)


@pytest.fixture
def interruptible():
    """A process started in the background may have been told to ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class UnderWay:
    """A result of a step that is not done until somebody waits for it or for a later one."""

    def __init__(self, value, step, steps, done):
        self.value, self.step, self.steps, self.done = value, step, steps, done
        steps.add(step)

    def block_until_ready(self):
        if self.step in self.steps:
            self.steps -= set(range(self.step + 1))
            self.done(self.step)
        return self

    def __array__(self, *args, **kwargs):
        return np.asarray(self.value, *args, **kwargs)


@pytest.mark.slow
def test_two_steps_at_most_are_under_way(tmp_path, monkeypatch, interruptible):
    under_way, most = set(), []
    step = train_loop.Program.step

    def done(number):
        if number == 4:
            signal.raise_signal(signal.SIGINT)

    def watched(program, state, ids):
        number = len(most) + 1
        state, measured = step(program, state, ids)
        loss, count = measured["loss"]
        measured |= {"loss": (UnderWay(loss, number, under_way, done), count)}
        most.append(len(under_way))
        return state, measured

    monkeypatch.setattr(train_loop.Program, "step", watched)
    result = train(tmp_path, config(steps=20, log_every=20, validate_every=0, save_every=20))
    assert max(most) == 2  # a device has the next step before it ends one
    assert 4 < result.step <= 6 and not result.finished


@pytest.mark.slow
def test_a_second_signal_is_not_caught(tmp_path, interruptible):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, batches=at(5, twice))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(tmp_path).finished


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (config(peak=0.5), r"holds a run with optimizer.peak = 0.01, not 0.5"),
        (config(steps=13), r"optimizer.steps = 12, not 13"),
        (config(cooldown=3), r"optimizer.cooldown = null, not 3"),
        (config(seed=1), r"run.seed = 0, not 1"),
        (config(dtype="bfloat16"), r"run.dtype"),
    ],
)
def test_another_config_is_refused(half, settings, told):
    with pytest.raises(TrainingError, match=told):
        train(half, settings)


@pytest.mark.slow
def test_what_changes_no_number_may_differ(alone, stopped):
    resumed = train(stopped, config(log_every=2, keep_last=1, validation_batches=2))
    assert_same(resumed.params, alone[1].params)


@pytest.mark.slow
def test_the_latest_checkpoints_are_kept(tmp_path):
    train(tmp_path, config(steps=15))
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [12, 15]


def test_a_directory_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        train(tmp_path / "file" / "run")


def test_a_recorded_config_is_compared(tmp_path):
    fields = {"a": 1, "none": None, "text": 'x"\n', "list": [1.5, "b"], "deep": {"b": {"c": True}}}
    fields["tables"] = [{"path": "p", "weight": 1e-8}]
    train_state.keep_config(tmp_path, fields, started=False, free=lambda *_: False)
    train_state.keep_config(tmp_path, fields, started=True, free=lambda *_: False)
    changed = fields | {"deep": {"b": {"c": False}}}
    with pytest.raises(TrainingError, match=r"deep.b.c = true, not false"):
        train_state.keep_config(tmp_path, changed, started=True, free=lambda *_: False)
