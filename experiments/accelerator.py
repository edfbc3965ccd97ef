"""Measures what an accelerator is worth, the most decisive first, within a time.

    python -m experiments.accelerator [--minutes 8.5] [--data DIR] [--results DIR]

First the kernels are checked: where they are wrong, only XLA is timed. Each step is a study, or a
part of one, in a process of its own, so that a crash ends one step only. A step first gets its
seconds; what is left then goes to the steps that were cut short, in order. Figures are printed as
they come and every row is kept: the same command resumes. `--smoke` tries each step on a few bytes
of a toy, on a processor too, and lets it finish.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import NamedTuple

from experiments.study import RESULTS

OUT_OF_TIME = "out of time"
WRONG = "exit status 1"


class Step(NamedTuple):
    """A study, or a part of it.

    Attributes:
      name: what is printed.
      study: the module.
      flags: the part.
      seconds: what it gets at first, with starting and compiling.
    """

    name: str
    study: str
    flags: tuple[str, ...]
    seconds: int


def decode(name: str, seconds: int, *flags: str, rows: str = "1") -> Step:
    return Step(name, "accelerator_decode", ("--rows", rows, *flags), seconds)


CHECK = Step("kernels are right", "accelerator_kernels", ("--steps", "check"), 90)
XLA_ONLY = decode("XLA only", 50, "--methods", "plain", "--without", "kernels")
# With a step, what it decides.
STEPS = [
    CHECK,
    decode("plain", 50, "--methods", "plain"),  # the share of bandwidth, and which kernels take it
    decode("BLT-DV 8", 50, "--methods", "blt-dv 8, one step"),  # the fewest bytes read
    XLA_ONLY,  # whether kernels of our own pay
    decode("no graphs", 50, "--methods", "plain", "--without", "graphs"),  # what launches cost
    decode("BLT-S 8", 50, "--methods", "blt-s 8"),  # many small passes
    Step("kernels, timed", "accelerator_kernels", ("--steps", "time"), 60),  # each beside its floor
    decode("BLT-DV 16", 50, "--methods", "blt-dv 16, one step"),  # windows of 17
    decode("batch 8", 60, rows="8"),
    decode("batch 64", 60, rows="64"),
    decode("the other methods", 60),
    Step("verify passes", "accelerator_kernels", ("--steps", "verify pass"), 60),
    Step("exactness", "exactness", (), 120),
    Step("training", "accelerator_training", (), 120),
]
NEED_DATA = {"exactness"}


def run(step: Step, options: argparse.Namespace, seconds: float) -> str:
    """Runs a step for at most so many seconds; returns its outcome."""
    if step.study in NEED_DATA and not options.data:
        return "needs --data"
    command = [sys.executable, "-m", f"experiments.studies.{step.study}", *step.flags]
    command += ["--results", str(options.results)]
    command += ["--data", options.data] if options.data else []
    command += ["--smoke"] if options.smoke else []
    # Memory as it is needed: a study may start processes of its own.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
        finally:
            with contextlib.suppress(ProcessLookupError):  # also what the study has started
                os.killpg(process.pid, signal.SIGKILL)
    return "done" if status == 0 else f"exit status {status}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=8.5, help="time for all steps")
    parser.add_argument("--data", help="directory of the data sets, as in docs/data.md")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    options = parser.parse_args(arguments)
    whole, begin = 60 * options.minutes, time.monotonic()
    outcomes: dict[str, str] = {}
    for again in (False, True):
        for step in STEPS:
            passed = time.monotonic() - begin
            wrong = outcomes.get(CHECK.name) == WRONG and step is not XLA_ONLY
            finished = outcomes.get(step.name, OUT_OF_TIME) != OUT_OF_TIME
            if passed >= whole or wrong or finished:
                continue
            print(f"=== {passed:.0f} s: {step.name}", flush=True)
            left = whole - passed
            seconds = left if again or options.smoke else min(left, step.seconds)
            outcomes[step.name] = run(step, options, seconds)
            print(f"=== {step.name}: {outcomes[step.name]}", flush=True)
    return int(any(outcome.startswith("exit") for outcome in outcomes.values()))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the step, too
    sys.exit(main())
