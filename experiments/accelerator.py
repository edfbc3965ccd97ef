"""Measures what an accelerator is worth, the most valuable first, within a time.

    python -m experiments.accelerator --minutes 25 [--data DIR] [--results DIR]

Each step is a study in a process of its own, so that a crash ends one step only. A step first gets
its share of the time; what is left goes to unfinished ones, in order. Every row is kept as it is
measured: the same command resumes.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

from experiments.study import RESULTS

SHARES = {"accelerator_decode": 0.4, "accelerator_kernels": 0.25, "exactness": 0.2,
          "accelerator_training": 0.15}  # fmt: skip
NEED_DATA = {"exactness"}
OUT_OF_TIME = "out of time"


def run(name: str, options: argparse.Namespace, seconds: float) -> str:
    """Runs a study for at most so many seconds; returns its outcome."""
    if name in NEED_DATA and not options.data:
        return "needs --data"
    command = [sys.executable, "-m", f"experiments.studies.{name}", "--results", options.results]
    command += ["--data", options.data] if options.data else []
    command += ["--smoke"] if options.smoke else []
    # Memory as it is needed: a study may start processes of its own.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    options.results.mkdir(parents=True, exist_ok=True)
    with (options.results / f"{name}.log").open("a") as log:
        try:
            done = subprocess.run(
                list(map(str, command)), env=environment, stdout=log, stderr=log, timeout=seconds,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return OUT_OF_TIME
    return "done" if done.returncode == 0 else f"exit status {done.returncode}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=25.0, help="time for all steps")
    parser.add_argument("--data", help="directory of the data sets, as in docs/data.md")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    options = parser.parse_args(arguments)
    whole, begin = 60 * options.minutes, time.monotonic()
    outcomes: dict[str, str] = {}
    for again in (False, True):
        for name, share in SHARES.items():
            left = whole - (time.monotonic() - begin)
            if left <= 0 or outcomes.get(name, OUT_OF_TIME) != OUT_OF_TIME:
                continue
            outcomes[name] = run(name, options, left if again else min(left, share * whole))
            print(f"{name}: {outcomes[name]}", flush=True)
    return int(any(outcome.startswith("exit") for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
