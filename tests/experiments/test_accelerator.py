"""The command that measures everything on an accelerator, as far as a CPU takes it."""

import argparse
import os
import signal
import subprocess
import sys

import pytest

from experiments import accelerator
from experiments.harness import device_trace


@pytest.fixture
def times(monkeypatch):
    """Replaces steps by ones that take the given seconds of a clock that stands still otherwise."""
    clock, needed, given = [0.0], {}, []

    def run(name, options, seconds):
        given.append((name, round(seconds)))
        clock[0] += min(seconds, needed[name])
        enough = seconds >= needed[name]
        needed[name] -= min(seconds, needed[name])
        return "done" if enough else accelerator.OUT_OF_TIME

    monkeypatch.setattr(accelerator, "SHARES", {"first": 0.25, "second": 0.75})
    monkeypatch.setattr(accelerator, "run", run)
    monkeypatch.setattr(accelerator.time, "monotonic", lambda: clock[0])
    return needed, given


def test_what_is_left_goes_to_the_unfinished(times, tmp_path):
    needed, given = times
    needed |= {"first": 20.0, "second": 10.0}
    assert accelerator.main(["--minutes", "1", "--results", str(tmp_path)]) == 0
    assert given == [("first", 15), ("second", 45), ("first", 35)]


def test_no_step_begins_when_the_time_is_over(times, tmp_path):
    needed, given = times
    needed |= {"first": 1000.0, "second": 1000.0}
    accelerator.main(["--minutes", "1", "--results", str(tmp_path)])
    assert sum(seconds for _, seconds in given) == 60


def test_a_step_that_fails_or_takes_too_long_says_so(tmp_path):
    options = argparse.Namespace(results=tmp_path, data=None, smoke=True)
    assert accelerator.run("no_such_study", options, 60.0) == "exit status 1"
    assert "no_such_study" in (tmp_path / "no_such_study.log").read_text()
    assert accelerator.run("no_such_study", options, 0.0) == accelerator.OUT_OF_TIME
    assert accelerator.run("exactness", options, 1.0) == "needs --data"


SAVES = """
import sys, time
try: print("begun", flush=True), time.sleep(60)
except KeyboardInterrupt: time.sleep(1), sys.exit(3)
"""
RECIPE = f"""
import sys
from experiments.harness import recipes
recipes.command = lambda *_: [sys.executable, "-c", {SAVES!r}]
sys.argv = ["train", "base", "--data", "."]
sys.exit(recipes.main("Trains.", ["base"], lambda *_: [], lambda _: []))
"""


def test_a_recipe_that_is_interrupted_waits_for_the_trainer():
    command = [sys.executable, "-c", RECIPE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout.readline() == b"begun\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 3


class Named:
    """A plane, a line or an event of a trace."""

    def __init__(self, name, inner=(), stats=()):
        self.name, self.stats = name, stats
        self.planes = self.lines = self.events = list(inner)
        self.duration_ns = 500


@pytest.mark.parametrize(
    ("plane", "lines", "count"),
    [
        ("/device:GPU:0", {"Stream #13(Compute)": 3, "Stream #14(Memcpy)": 1, "XLA Modules": 1}, 4),
        ("/device:TPU:0", {"XLA Ops": 5, "Steps": 1, "XLA Modules": 2}, 5),
        ("/host:CPU", {"tf_XLAEigen": 2, "python": 3}, 2),
    ],
)
def test_operations_are_those_of_the_device(plane, lines, count):
    def events(name, number):
        thunk = (("hlo_module", "jit_f"),) if name == "tf_XLAEigen" else ()
        return [Named(f"event.{nth}", stats=thunk) for nth in range(number)]

    made = [Named(name, events(name, number)) for name, number in lines.items()]
    host = Named("/host:metadata", [Named("python", events("python", 4))])
    found = device_trace.read(Named("", [Named(plane, made), host]))
    assert sum(kind.count for kind in found.values()) == count
    assert found["event.0"].microseconds == found["event.0"].count / 2
    assert "event.1" in found  # kernels that differ in their numbers are others
