"""How fast training runs on an accelerator: bytes per second of `bytelax train`, by preset.

A few steps on random bytes, in bfloat16 with the presets' own windows; batches are cut to what one
device holds. The share of the peak is the one that the training log prints.

    python -m experiments.studies.accelerator_training
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

from experiments import study
from experiments.study import Column

# What decides most comes first.
SETTINGS = [
    {"kind": "blt", "preset": "1b", "batch": 4},
    {"kind": "blt-d", "preset": "1b", "batch": 4},
    {"kind": "blt", "preset": "100m", "batch": 32},
    {"kind": "byte-lm", "preset": "1b", "batch": 4},
]
SMOKE = [{"kind": "byte-lm", "preset": "laptop", "batch": 2}]
_LOG_EVERY = 4
COLUMNS = [
    Column("objective", "kind"),
    Column("preset", "preset"),
    Column("batch", "batch"),
    Column("bytes per second", "bytes_per_second", ",.0f"),
    Column("of the peak", "peak_share", ".1%"),
    Column("failed", "failed"),
]


def measure(setting: dict, *, steps: int) -> dict:
    """The log of a short run, without its first line, which holds the compilation."""
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        text = np.random.default_rng(0).integers(32, 127, 4 << 20, dtype=np.uint8)
        (scratch / "text.txt").write_bytes(text.tobytes())
        patcher = ["--patcher", "tiny"] if setting["kind"].startswith("blt") else []
        done = subprocess.run(
            [
                sys.executable, "-m", "bytelax.cli", "train", setting["kind"], *patcher,
                "--preset", setting["preset"], "--data", str(scratch / "text.txt"),
                "--out", str(scratch / "run"), "--data.batch", str(setting["batch"]),
                "--optimizer.steps", str(steps), "--optimizer.warmup", "1",
                "--run.log-every", str(_LOG_EVERY), "--run.validate-every", "0",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:300]}
        lines = (scratch / "run" / "metrics.jsonl").read_text().splitlines()
    timed = [row for row in map(json.loads, lines) if "bytes_per_second" in row][1:]
    return {
        name: statistics.median(row[name] for row in timed)
        for name in ("bytes_per_second", "peak_share")
        if name in timed[0]
    }


def main():
    # The runs are processes of their own: this one leaves the device's memory to them.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    options = study.parser(__doc__).parse_args()
    steps = (2 if options.smoke else 6) * _LOG_EVERY
    study.run(
        "accelerator_training", options, SMOKE if options.smoke else SETTINGS,
        lambda setting: measure(setting, steps=steps), conditions={"steps": steps},
        code=study.TRAINING,
    )  # fmt: skip


if __name__ == "__main__":
    main()
