"""A directory has one run at a time."""

import subprocess
import sys

import pytest

from bytelax.training import guards, runs
from bytelax.training.train_state import TrainingError
from tests.helpers import tiny_runs
from tests.helpers.tiny_runs import NextByte, batches

HOLD = """
import pathlib, sys, time
from bytelax.training import guards

with guards.held(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_second_run_is_refused_and_changes_nothing(tmp_path):
    with guards.held(tmp_path):
        before = sorted(tmp_path.iterdir())
        with pytest.raises(TrainingError, match="is in use by another run"):
            runs.train(tiny_runs.config(), NextByte(), batches, tmp_path)
        assert sorted(tmp_path.iterdir()) == before
    with guards.held(tmp_path):
        pass


@pytest.mark.slow
def test_death_gives_it_back(tmp_path):
    held = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert held.stdout.readline() == "held\n"
        with pytest.raises(TrainingError, match="in use"), guards.held(tmp_path):
            pass
    finally:
        held.kill()
        held.wait()
    with guards.held(tmp_path):
        pass


def test_a_file_system_without_locks_is_used(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks available")

    monkeypatch.setattr(guards.fcntl, "flock", refuse)
    with guards.held(tmp_path):
        pass
