"""Measures everything on the accelerator of this machine, the most valuable first.

    python -m experiments.accelerator.run --minutes 25 [--data DIR] [--results DIR]

Each step is a study in a process of its own, since XLA reads its flags once, and so that a crash
ends one step only. A step first gets its share of the time; what is left goes to unfinished ones in
order. Every row is kept as it is measured: run the command again to go on. `README.md` in the
directory of the results lists the steps with their pages.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE"


class Step(NamedTuple):
    """A study with its flags.

    Attributes:
      name: its name in the table.
      study: module of the study.
      share: share of the time that it gets at first.
      flags: flags of the study.
      xla: flags of XLA, which only a GPU knows.
      data: whether it needs the data sets.
    """

    name: str
    study: str
    share: float
    flags: tuple[str, ...] = ()
    xla: str = ""
    data: bool = False

    @property
    def folder(self) -> str:
        return self.name.replace(", ", "_").replace(" ", "_")

    @property
    def results(self) -> str:
        return self.flags[1] if self.flags[:1] == ("--name",) else "results"


_AUTOTUNE_OFF = "--xla_gpu_autotune_level=0"
STEPS = [
    Step("decode", "experiments.accelerator.decode.run", 0.35),
    Step("kernels", "experiments.accelerator.kernels.run", 0.15),
    Step("exactness", "experiments.quality.exactness.run", 0.1, data=True),
    Step(
        "exactness, autotune off", "experiments.quality.exactness.run", 0.1,
        xla=_AUTOTUNE_OFF, data=True,
    ),
    Step(
        "decode, graphs", "experiments.accelerator.decode.run", 0.1, ("--name", "graphs"),
        f"--xla_gpu_enable_command_buffer={_GRAPHS}",
    ),
    Step("training", "experiments.accelerator.training.run", 0.1),
    Step(
        "decode, autotune off", "experiments.accelerator.decode.run", 0.1,
        ("--name", "autotune_off"), _AUTOTUNE_OFF,
    ),
]  # fmt: skip


def run(step: Step, options: argparse.Namespace, seconds: float) -> str:
    """Runs a step for at most so many seconds; returns what came of it."""
    if step.data and not options.data:
        return "needs --data"
    folder = options.results / step.folder
    command = [sys.executable, "-m", step.study, "--results", str(folder), *step.flags]
    command += ["--data", options.data] if step.data else []
    command += ["--smoke"] if options.smoke else []
    flags = " ".join([os.environ.get("XLA_FLAGS", ""), step.xla]).strip()
    # Memory as it is needed: a study may start processes of its own.
    own = {"XLA_FLAGS": flags, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("a") as log:
        try:
            done = subprocess.run(
                command, env=os.environ | own, stdout=log, stderr=log,
                timeout=seconds, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return "out of time"
    return "done" if done.returncode == 0 else f"exit status {done.returncode}"


def rows(step: Step, options: argparse.Namespace) -> int:
    """Number of rows that a step has measured."""
    path = options.results / step.folder / f"{step.results}.json"
    return len(json.loads(path.read_text())["rows"]) if path.exists() else 0


def page(outcomes: dict[Step, str], options: argparse.Namespace) -> str:
    lines = ["# On this accelerator", "", "| step | outcome | rows | page |", "|---|---|---|---|"]
    for step, outcome in outcomes.items():
        name = "README.md" if step.results == "results" else f"{step.results}.md"
        made = (options.results / step.folder / name).exists()
        link = f"[page]({step.folder}/{name})" if made else f"[log]({step.folder}/log.txt)"
        lines.append(f"| {step.name} | {outcome} | {rows(step, options)} | {link} |")
    return "\n".join([*lines, ""])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--minutes", type=float, default=25.0, help="time for all steps")
    parser.add_argument("--data", help="directory of the data sets, as in docs/data.md")
    default = pathlib.Path(__file__).parent / "measured"
    parser.add_argument("--results", type=pathlib.Path, default=default)
    parser.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    options = parser.parse_args(arguments)
    whole, begin = 60 * options.minutes, time.monotonic()
    outcomes: dict[Step, str] = dict.fromkeys(STEPS, "not begun")

    def left() -> float:
        return whole - (time.monotonic() - begin)

    for again in (False, True):
        for step in STEPS:
            if left() <= 0 or outcomes[step] not in ("not begun", "out of time"):
                continue
            allowed = left() if again else min(left(), step.share * whole)
            print(f"{step.name}: up to {allowed:.0f} s", flush=True)
            outcomes[step] = run(step, options, allowed)
            print(f"{step.name}: {outcomes[step]}", flush=True)
            (options.results / "README.md").write_text(page(outcomes, options))
    return int(any(outcome.startswith("exit") for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
