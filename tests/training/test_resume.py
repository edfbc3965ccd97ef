"""A run that was stopped ends where one left alone does; what is damaged is told."""

import contextlib
import dataclasses
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from bytelax.pods import distributed
from bytelax.training import runs, train_loop, train_state
from bytelax.training.train_state import TrainingError
from tests.helpers import tiny_runs
from tests.helpers.tiny_runs import NextByte, batches, config

NOISY = NextByte(noise=0.1)


def train(out, settings=None, batches=batches, told=None):
    told = [] if told is None else told
    result = runs.train(settings or config(), NOISY, batches, out, report=told.append)
    for line in [line for line in told if line.endswith(" parameters")]:
        told.remove(line)
    return result


def at(index, action):
    """Batches that do something once, before the batch that ends with that example."""
    done = []

    def acting(split, start):
        for batch in batches(split, start):
            if split == "train" and batch.index == index and not done:
                done.append(action())
            yield batch

    return acting


def stop_at(step):
    return at(step * tiny_runs.BATCH, lambda: os.kill(os.getpid(), signal.SIGTERM))


# Its writers of files may then find their event loop closed, which harms nothing.
ORBAX_IS_CUT_SHORT = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def losses(out):
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["split"], row["loss"]) for row in rows]


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run of 12 steps, checkpoints at 3, 6, 9 and 12, never stopped."""
    out = tmp_path_factory.mktemp("alone")
    return out, train(out)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """The same, stopped after the 7th step."""
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
    out, whole = alone
    told = []
    resumed = train(stopped, told=told)
    assert told[0].startswith("going on from step 7")
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


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_a_signal_is_answered_before_the_step_ends(number, tmp_path, interruptible):
    told, answered = [], threading.Event()

    def report(message):
        told.append(message)
        if message.startswith("stopping within 2 steps"):
            answered.set()

    class Signalled(NextByte):
        def loss(self, params, ids, key):
            jax.debug.callback(in_the_step)
            return super().loss(params, ids, key)

    def in_the_step():
        os.kill(os.getpid(), number)
        told.append(answered.wait(timeout=10))

    result = runs.train(config(), Signalled(), batches, tmp_path, report=report)
    assert result.step == 1 and not result.finished
    answer = told.index(
        "stopping within 2 steps, with a checkpoint; another Ctrl-C stops without one"
    )
    assert told[answer + 1] is True
    assert "stopped and saved at step 1" in told[-1]
    assert signal.set_wakeup_fd(-1) == -1


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
        train(tmp_path, batches=at(5 * tiny_runs.BATCH, twice))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(tmp_path).finished


def test_a_half_written_checkpoint_is_skipped(alone, stopped):
    partial = stopped / "checkpoints" / "8.orbax-checkpoint-tmp"
    shutil.copytree(stopped / "checkpoints" / "7", partial)
    told = []
    resumed = train(stopped, told=told)
    assert told[0] == "skipped the half-written checkpoint of step 8"
    assert not partial.exists()
    assert_same(resumed.params, alone[1].params)


def damage(checkpoint):
    for path in (checkpoint / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_damaged_checkpoint_is_set_aside(alone, stopped):
    damage(stopped / "checkpoints" / "7")
    told = []
    resumed = train(stopped, told=told)
    assert told[0].startswith("skipped the checkpoint of step 7") and "broken-7" in told[0]
    assert told[1].startswith("going on from step 6")
    assert_same(resumed.params, alone[1].params)
    assert losses(stopped) == losses(alone[0])  # step 7 is there once


@pytest.mark.slow
def test_what_another_process_cannot_read_is_set_aside(alone, stopped, monkeypatch):
    answers = iter([False, True])  # of the others, about the lock and the checkpoint of step 7
    monkeypatch.setattr(distributed, "anywhere", lambda flag: next(answers, flag))
    told = []
    resumed = train(stopped, told=told)
    assert told[0].endswith("broken-7: another process cannot read its part")
    assert told[1].startswith("going on from step 6")
    assert_same(resumed.params, alone[1].params)


@pytest.mark.slow
def test_a_save_that_failed_elsewhere_ends_all(tmp_path, monkeypatch):
    answers = iter([False])  # about the lock
    monkeypatch.setattr(distributed, "anywhere", lambda _: next(answers, True))
    with pytest.raises(TrainingError, match="step 3 could not be saved"):
        train(tmp_path, config(steps=3))
    assert not (tmp_path / "model").exists()


def test_nothing_is_touched_when_no_checkpoint_can_be_read(stopped):
    for checkpoint in (stopped / "checkpoints").iterdir():
        damage(checkpoint)
    before = sorted(stopped.rglob("*"))
    with pytest.raises(TrainingError, match=r"checkpoints/7 cannot be read") as error:
        train(stopped)
    assert "\n" not in str(error.value)
    assert sorted(stopped.rglob("*")) == before


@pytest.mark.slow
def test_damaged_metrics_of_an_old_checkpoint_are_set_aside(alone, stopped):
    (stopped / "checkpoints" / "6" / "metrics" / "metrics").write_text('{"bits_per')
    told = []
    resumed = train(stopped, told=told)
    assert told[0].startswith("skipped the checkpoint of step 6")
    assert_same(resumed.params, alone[1].params)


@pytest.mark.slow
def test_a_checkpoint_that_was_half_deleted_does_no_harm(alone, stopped):
    shutil.rmtree(stopped / "checkpoints" / "6" / "state")
    (stopped / "checkpoints" / "6" / "metrics" / "metrics").unlink()
    assert_same(train(stopped).params, alone[1].params)


def cooling(steps, cooldown):
    settings = config(steps=steps)
    optimizer = dataclasses.replace(settings.optimizer, cooldown=cooldown)
    return dataclasses.replace(settings, optimizer=optimizer)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (config(peak=0.5), r"holds a run with optimizer.peak = 0.01, not 0.5"),
        (
            config(steps=13),
            r"optimizer.steps = 12, not 13: .* may change its length",
        ),
        (cooling(12, 3), r"optimizer.cooldown = null, not 3: .* until its cooldown begins"),
        (cooling(20, 3), r"optimizer.steps = 12, not 20; optimizer.cooldown = null, not 3"),
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
def test_the_latest_and_the_best_are_kept(tmp_path):
    def losing(split, start):  # text turns to noise: the first checkpoint stays the best
        for batch in batches(split, start):
            noise = np.random.default_rng(batch.index).integers(4, 260, batch.ids.shape)
            late = split == "train" and batch.index > 3 * tiny_runs.BATCH
            yield batch._replace(ids=noise.astype(np.int32)) if late else batch

    train(tmp_path, config(steps=15), losing)
    rows = [row for row in losses(tmp_path) if row[1] == "valid"]
    best = min(rows, key=lambda row: row[2])[0]
    assert best not in (12, 15)
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [best, 12, 15]


@contextlib.contextmanager
def full_disk(out, *, begin, whole):
    """Batches, and what ends it: from a step on no file may grow beyond 4 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def disk(split, start):
        for batch in batches(split, start):
            if split == "train" and batch.index == begin * tiny_runs.BATCH:
                deadline = time.monotonic() + 60
                while not (out / "checkpoints" / str(whole)).exists():
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
            yield batch

    try:
        yield disk, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@ORBAX_IS_CUT_SHORT
@pytest.mark.slow
def test_a_full_disk_loses_nothing(alone, tmp_path, capfd, caplog):
    told = []
    with full_disk(tmp_path, begin=5, whole=3) as (disk, free):

        def report(line):
            told.append(line)
            if "cannot be written" in line:
                free()

        result = runs.train(config(), NOISY, disk, tmp_path, report=report)
    failed = [line for line in told if "cannot be written" in line]
    assert len(failed) == 1, told
    assert "checkpoint of step 6" in failed[0] and "that of step 3 is whole" in failed[0]
    assert_same(result.params, alone[1].params)
    kept = sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert kept == [9, 12]
    assert capfd.readouterr() == ("", "") and not caplog.records


@ORBAX_IS_CUT_SHORT
@pytest.mark.slow
def test_a_full_disk_at_the_end_is_an_error(tmp_path):
    with (
        full_disk(tmp_path, begin=11, whole=9) as (disk, _),
        pytest.raises(TrainingError, match="step 12 could not be saved"),
    ):
        train(tmp_path, batches=disk)
    assert (tmp_path / "checkpoints" / "9").exists()
    assert train(tmp_path).finished


def test_a_directory_that_cannot_be_written_is_told_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        train(tmp_path / "file" / "run")


def test_configs_survive_toml(tmp_path):
    fields = {"a": 1, "none": None, "text": 'x"\n', "list": [1.5, "b"], "deep": {"b": {"c": True}}}
    fields["tables"] = [{"path": "p", "weight": 1e-8}]
    train_state.keep_config(tmp_path, fields, started=False, free=lambda *_: False)
    train_state.keep_config(tmp_path, fields, started=True, free=lambda *_: False)
    changed = fields | {"deep": {"b": {"c": False}}}
    with pytest.raises(TrainingError, match=r"deep.b.c = true, not false"):
        train_state.keep_config(tmp_path, changed, started=True, free=lambda *_: False)
