"""Trains models and drafters of the studies on an accelerator, several at a time.

    python -m experiments.accelerator.train --data DIR --tasks TASKS --runs RUNS --minutes 10

A model this small leaves most of an accelerator idle, so several processes share it. Each is a
stage of the recipes in `experiments/training`, in RUNS/<the folder of its recipes>; the same
command goes on with those that the time or an interrupt cut short. What a stage goes on from must
be there, or be in the list. TASKS is what `experiments.recipes.rule_tasks_data` made.
"""

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from experiments.recipes.draft_curve import MEGABYTES
from experiments.recipes.rule_tasks import CONTINUED

_SAVING = 30  # seconds that the runs may take to save their states


class Stage(NamedTuple):
    """A stage of a folder of recipes, and the stages of that folder that it needs."""

    recipes: str
    name: str
    needs: tuple[str, ...] = ()

    def directory(self, runs: pathlib.Path) -> pathlib.Path:
        return runs / self.recipes / self.name

    def unfinished(self, runs: pathlib.Path) -> pathlib.Path:
        """Lies beside its directory until it has ended: a run that is stopped has a model, too."""
        return runs / self.recipes / f"{self.name}.unfinished"


STAGES = [
    Stage("translation", "blt", ("entropy",)),
    Stage("bundled", "tiny-d", ("tiny",)),
    *(Stage("rule_tasks", name, ("task",)) for name in CONTINUED),
    *(Stage("translation", name, ("blt",)) for name in ("blt-d", "blt-more", "blt-d-paper")),
    Stage("drafters", "latents"),
    *(Stage("draft_curve", name) for name in MEGABYTES),
]


def done(stage: Stage, runs: pathlib.Path) -> bool:
    """Whether a stage has ended, or its model was put there."""
    return not stage.unfinished(runs).exists() and any(
        (stage.directory(runs) / name).exists() for name in ("model", "heads", "config.json")
    )


def ready(waiting: list[Stage], runs: pathlib.Path) -> Iterator[Stage]:
    """The stages that have what they need, in order."""
    for stage in waiting:
        if all(done(stage._replace(name=name), runs) for name in stage.needs):
            yield stage


def begin(stage: Stage, options: argparse.Namespace) -> subprocess.Popen:
    """Starts a stage. It takes memory as it needs it, since others share the device."""
    folder = options.runs / stage.recipes
    folder.mkdir(parents=True, exist_ok=True)
    stage.unfinished(options.runs).touch()
    data = options.tasks if stage.recipes == "rule_tasks" else options.data
    command = [sys.executable, "-m", f"experiments.training.{stage.recipes}.train", stage.name]
    command += ["--data", str(data), "--runs", str(folder)]
    command += ["--steps", str(options.steps)] if options.steps else []
    with (folder / f"{stage.name}.log").open("a") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True,
            env=os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        )  # fmt: skip


def train(options: argparse.Namespace) -> bool:
    """Trains until all is done or the time is over; returns whether nothing failed."""
    end = time.monotonic() + 60 * options.minutes
    waiting = [stage for stage in STAGES if not done(stage, options.runs)]
    running: dict[Stage, subprocess.Popen] = {}
    good = True
    try:
        while time.monotonic() < end and (running or any(ready(waiting, options.runs))):
            for stage in list(ready(waiting, options.runs))[: options.at_once - len(running)]:
                print(f"{stage.recipes} {stage.name}: begins", flush=True)
                waiting.remove(stage)
                running[stage] = begin(stage, options)
            time.sleep(1.0)
            for stage, process in list(running.items()):
                if process.poll() is not None:
                    del running[stage]
                    good &= ended(stage, process.returncode, options.runs)
    finally:
        for process in running.values():
            os.killpg(process.pid, signal.SIGINT)
        last = time.monotonic() + _SAVING
        for stage, process in running.items():
            try:
                status = process.wait(max(0.0, last - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
            ended(stage, status, options.runs)
    return good


def ended(stage: Stage, status: int, runs: pathlib.Path) -> bool:
    """Notes what came of a stage; returns whether it is complete."""
    print(f"{stage.recipes} {stage.name}: exit status {status}", flush=True)
    if status == 0:
        stage.unfinished(runs).unlink()
    return status == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name in ("data", "tasks", "runs"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--at-once", type=int, default=4, help="processes that share the device")
    parser.add_argument("--steps", type=int, help="of each run, for a trial")
    return int(not train(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
