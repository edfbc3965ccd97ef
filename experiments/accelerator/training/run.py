"""How fast training runs on an accelerator: bytes per second of `bytelax train`, by preset.

    python -m experiments.accelerator.training.run

A few steps on random bytes, in bfloat16 with the presets' own windows; batches are cut to what one
device holds. The share of the peak is the one that the training log prints.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import jax
import numpy as np

from experiments.harness import study

PARTIAL = True
# What decides most comes first.
SETTINGS = [
    {"kind": "blt", "preset": "1b", "batch": 4},
    {"kind": "blt-d", "preset": "1b", "batch": 4},
    {"kind": "blt", "preset": "100m", "batch": 32},
    {"kind": "byte-lm", "preset": "1b", "batch": 4},
]
SMOKE = [{"kind": "byte-lm", "preset": "laptop", "batch": 2}]
_LOG_EVERY = 4


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
    options = study.parser(__doc__, __file__, model=None).parse_args()
    study.run(
        options.results / "results.json",
        # The runs are processes of their own: this one leaves the device's memory to them.
        {"backend": jax.config.jax_platforms or "default", "log_every": _LOG_EVERY},
        SMOKE if options.smoke else SETTINGS,
        lambda setting: measure(setting, steps=(2 if options.smoke else 6) * _LOG_EVERY),
        markdown=markdown,
        partial=PARTIAL,
    )


def markdown(report):
    rows = [
        (
            *row["setting"].values(),
            row.get("failed", f"{row.get('bytes_per_second', 0):,.0f}"),
            f"{row['peak_share']:.1%}" if row.get("peak_share") is not None else None,
        )
        for row in report["rows"]
    ]
    header = ("kind", "preset", "batch", "bytes/s", "of the peak")
    return "\n".join([
        "# Training on an accelerator", "",
        f"`bytelax train` on random bytes, jax {report['jax']}, {report['machine']}.", "",
        *study.table(header, rows), "",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
