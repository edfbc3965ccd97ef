"""The command that measures everything on an accelerator, as far as a CPU takes it."""

import argparse
import subprocess
import sys
import time

import psutil
import pytest

from experiments import accelerator
from experiments.harness import device_trace


def test_wrong_kernels_are_not_timed(monkeypatch):
    ran = []

    def run(step, options, seconds):
        ran.append(step)
        return accelerator.WRONG if step is accelerator.CHECK else "done"

    monkeypatch.setattr(accelerator, "run", run)
    assert accelerator.main([]) == 1
    assert ran == [accelerator.CHECK, accelerator.XLA_ONLY]


def test_a_step_that_fails_or_takes_too_long_says_so(tmp_path, capfd):
    options = argparse.Namespace(results=tmp_path, data=None, smoke=True)
    step = accelerator.Step("", "no_such_study", (), 1)
    assert accelerator.run(step, options, 60.0) == "exit status 1"
    assert "no_such_study" in capfd.readouterr().err
    assert accelerator.run(step, options, 0.0) == accelerator.OUT_OF_TIME
    assert accelerator.run(step._replace(study="exactness"), options, 1.0) == "needs --data"


@pytest.mark.slow  # a step that takes too long is ended in the same way
def test_a_run_that_is_ended_ends_its_step(tmp_path):
    command = [sys.executable, "-m", "experiments.accelerator", "--smoke"]
    command += ["--results", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"===")
        while not (steps := psutil.Process(process.pid).children()):
            time.sleep(0.05)
        process.terminate()
        assert process.wait(20) == 1
    steps[0].wait(20)  # raises if it goes on


@pytest.mark.exhaustive
def test_every_step_runs_on_a_processor(tmp_path, monkeypatch):
    monkeypatch.setattr(accelerator, "NEED_DATA", {"exactness", "accelerator_training"})
    options = ["--smoke", "--minutes", "60", "--results", str(tmp_path)]
    assert accelerator.main(options) == 0


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
