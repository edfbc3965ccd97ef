"""The command that measures everything on an accelerator, as far as a CPU takes it."""

import argparse
import json
import os
import signal
import subprocess
import sys

import pytest

from experiments.accelerator import run as everything
from experiments.accelerator import train
from experiments.accelerator.run import Step
from experiments.accelerator.train import Stage
from experiments.harness import device_trace

FIRST, SECOND = Step("first", "a", 0.25), Step("second, graphs", "b", 0.75, ("--name", "graphs"))


@pytest.fixture
def times(monkeypatch):
    """Replaces steps by ones that take the given seconds of a clock that stands still otherwise."""
    clock, needed, given = [0.0], {}, []

    def run(step, options, seconds):
        given.append((step.name, round(seconds)))
        clock[0] += min(seconds, needed[step])
        enough = seconds >= needed[step]
        needed[step] -= min(seconds, needed[step])
        return "done" if enough else "out of time"

    monkeypatch.setattr(everything, "STEPS", [FIRST, SECOND])
    monkeypatch.setattr(everything, "run", run)
    monkeypatch.setattr(everything.time, "monotonic", lambda: clock[0])
    return needed, given


def test_what_is_left_goes_to_the_unfinished(times, tmp_path):
    needed, given = times
    needed |= {FIRST: 20.0, SECOND: 10.0}
    assert everything.main(["--minutes", "1", "--results", str(tmp_path)]) == 0
    assert given == [("first", 15), ("second, graphs", 45), ("first", 35)]
    assert "| first | done | 0 |" in (tmp_path / "README.md").read_text()


def test_no_step_begins_when_the_time_is_over(times, tmp_path):
    needed, given = times
    needed |= {FIRST: 1000.0, SECOND: 1000.0}
    everything.main(["--minutes", "1", "--results", str(tmp_path)])
    assert sum(seconds for _, seconds in given) == 60
    assert "| second, graphs | out of time |" in (tmp_path / "README.md").read_text()


def options(tmp_path, **more):
    return argparse.Namespace(results=tmp_path, data=None, smoke=True, **more)


def test_a_step_that_fails_or_takes_too_long_says_so(tmp_path):
    broken = Step("broken", "no_such_module", 1.0)
    assert everything.run(broken, options(tmp_path), 60.0) == "exit status 1"
    assert "no_such_module" in (tmp_path / "broken" / "log.txt").read_text()
    assert everything.run(broken, options(tmp_path), 0.0) == "out of time"
    assert everything.run(Step("x", "y", 1.0, data=True), options(tmp_path), 1.0) == "needs --data"


def test_the_page_counts_rows_and_links(tmp_path):
    folder = tmp_path / "second_graphs"
    folder.mkdir()
    (folder / "graphs.json").write_text(json.dumps({"rows": [{}, {}]}))
    (folder / "graphs.md").write_text("")
    page = everything.page({FIRST: "done", SECOND: "done"}, options(tmp_path))
    assert "| second, graphs | done | 2 | [page](second_graphs/graphs.md) |" in page
    assert "| first | done | 0 | [log](first/log.txt) |" in page


BASE, NEXT = Stage("recipes", "base"), Stage("recipes", "next", ("base",))


@pytest.fixture
def trainings(monkeypatch, tmp_path):
    """Replaces trainings by programs, and lists those that began."""
    programs, begun = {}, []

    def begin(stage, options):
        begun.append(stage.name)
        stage.directory(options.runs).mkdir(parents=True, exist_ok=True)
        stage.unfinished(options.runs).touch()
        return subprocess.Popen(
            [sys.executable, "-c", programs[stage]], cwd=stage.directory(options.runs),
            start_new_session=True,
        )  # fmt: skip

    monkeypatch.setattr(train, "STAGES", [NEXT, BASE])
    monkeypatch.setattr(train, "begin", begin)
    return programs, begun, argparse.Namespace(runs=tmp_path, minutes=0.2, at_once=2)


ENDS = "import os; os.mkdir('model')"


def test_a_stage_waits_for_what_it_needs_and_is_not_run_again(trainings):
    programs, begun, options = trainings
    programs |= {BASE: ENDS, NEXT: ENDS}
    assert train.train(options) and begun == ["base", "next"]
    assert train.train(options) and begun == ["base", "next"]


def test_what_a_failed_stage_was_to_make_is_not_trained_on(trainings):
    programs, begun, options = trainings
    programs |= {BASE: "raise SystemExit(1)"}
    assert not train.train(options) and begun == ["base"]


STOPS = """
import os, time
try: time.sleep(60)
except KeyboardInterrupt: os.mkdir("model"), os._exit(130)
"""


def test_a_stage_that_the_time_cut_short_goes_on(trainings):
    """Also when it left the model of that moment, on which no other stage goes on."""
    programs, begun, options = trainings
    programs |= {BASE: STOPS, NEXT: ENDS}
    options.minutes = 0.05
    assert train.train(options) and begun == ["base"]
    assert (BASE.directory(options.runs) / "model").exists()
    programs[BASE], options.minutes = "", 0.2
    assert train.train(options) and begun == ["base", "base", "next"]


def test_an_interrupt_stops_all_stages(trainings, monkeypatch):
    programs, _, options = trainings
    programs[BASE] = STOPS
    sleep = train.time.sleep

    def interrupt(seconds):
        sleep(2 * seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr(train.time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train.train(options)
    assert (BASE.directory(options.runs) / "model").exists()


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


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["accelerator/decode", "accelerator/training"])
def test_the_studies_run_through(name, smoke):
    report, table = smoke(name, files=["results"])  # the others have flags of their own
    assert not any("failed" in row for row in report["rows"])
    assert table.count("\n| ") >= len(report["rows"])


@pytest.fixture
def data(tmp_path):
    return str(tmp_path)
