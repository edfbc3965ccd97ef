"""What BLT-D's joint objective costs plain decoding, and what each departure from the paper buys.

    python experiments/joint_tax.py --data DIR --patcher runs/entropy

Trains small models of one size on the same bytes: a plain BLT, BLT-D as published with one block
size (4, 8, 16), and departures from it; then measures all of them alike on held-out text. The
recipe is that of the bundled model, made small.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import jax
import numpy as np
from bundled_data import sources
from train_bundled import THRESHOLD, stack

from bytelax import load
from bytelax.training import data
from bytelax.training.corruption import CorruptionConfig
from bytelax.training.data import DataConfig
from bytelax.training.objectives import BLTD, NextByte

WINDOW, BATCH = 256, 16
PUBLISHED = ["--objective.mask-loss", "sum"]
MODELS = {
    "BLT": ["blt"],
    "BLT-D-4": ["blt-d", "--objective.corruption.block-sizes", "4", *PUBLISHED],
    "BLT-D-8": ["blt-d", "--objective.corruption.block-sizes", "8", *PUBLISHED],
    "BLT-D-16": ["blt-d", "--objective.corruption.block-sizes", "16", *PUBLISHED],
    "BLT-D-16, mean": [
        "blt-d", "--objective.corruption.block-sizes", "16", "--objective.mask-loss", "mean",
    ],
    "mixed sizes": [
        "blt-d", "--objective.corruption.block-sizes", "4", "8", "16",
        "--objective.mask-loss", "mean", "--objective.corruption.t-for-each", "block",
    ],
    "mixed sizes, mid-patch": [
        "blt-d", "--objective.corruption.block-sizes", "4", "8", "16",
        "--objective.mask-loss", "mean", "--objective.corruption.t-for-each", "block",
        "--objective.corruption.mid-patch", "0.5",
    ],
}  # fmt: skip
SHAPE = [
    *stack("encoder", 64, 1, ffn_dim=192, window=64),
    *stack("global-transformer", 128, 3, ffn_dim=384),
    *stack("decoder", 64, 2, ffn_dim=192, window=64),
    "--model.decoder-input", "embedding", "--model.hashing.vocab", "509",
    "--model.patching.threshold", str(THRESHOLD), "--model.patching.max-patch-length", "8",
    "--objective.max-patches", "80",
]  # fmt: skip


def train(name, out, options):
    if (out / "model").exists():
        return
    kind, *rest = MODELS[name]
    if kind == "blt-d":
        rest += ["--objective.corruption.most-blocks", "16"]
    subprocess.run(
        [
            sys.executable, "-m", "bytelax.cli", "train", kind, "--out", str(out), *SHAPE, *rest,
            "--patcher", options.patcher, "--data.sources", *map(str, sources(options.data)),
            "--data.window", str(WINDOW), "--data.batch", str(BATCH),
            "--optimizer.steps", str(options.steps), "--optimizer.peak", "3e-3",
            "--optimizer.warmup", "60", "--run.validate-every", "0", "--run.save-every", "0",
            "--run.log-every", "100",
        ],
        check=True,
    )  # fmt: skip


def measure(model, batches):
    """Bits per byte, and the accuracy of fully masked blocks by size and where they start."""
    figures = {"bits_per_byte": averages(NextByte(model.module, 80), model, batches)}
    for size in (4, 8, 16) if model.config.block_size else ():
        for place, share in (("on a boundary", 0.0), ("anywhere", 1.0)):
            corruption = CorruptionConfig(
                block_sizes=(size,), mid_patch=share, smallest_t=0.999, most_blocks=16
            )
            objective = BLTD(model.module, corruption, max_patches=80)
            figures[f"block {size} {place}"] = averages(objective, model, batches)
    return {
        name: measured["bits_per_byte" if name == "bits_per_byte" else "masked_accuracy"]
        for name, measured in figures.items()
    }


def averages(objective, model, batches):
    loss = jax.jit(objective.loss)
    total = {}
    for index, ids in enumerate(batches):
        _, metrics = loss(model.params, ids, jax.random.key(index))
        for name, (value, count) in metrics.items():
            before = total.get(name, (0.0, 0.0))
            total[name] = before[0] + float(value), before[1] + float(count)
    return {name: value / count for name, (value, count) in total.items() if count}


def table(results):
    columns = list(results["mixed sizes"])
    lines = ["| model | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, figures in results.items():
        cells = [f"{figures[c]:.3f}" if c in figures else "" for c in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--patcher", default="runs/entropy")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/joint_tax"))
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("experiments/results"))
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batches", type=int, default=24, help="of held-out text")
    options = parser.parse_args()
    config = DataConfig(sources(options.data), window=WINDOW, batch=BATCH, prefetch=0)
    held_out = [batch.ids for batch in data.batches(config, split="valid", start=0)]
    picked = np.random.default_rng(0).permutation(len(held_out))[: options.batches]
    held_out = [held_out[i] for i in picked]
    results = {}
    for name in MODELS:
        out = options.out / name.replace(", ", "-").replace(" ", "-").lower()
        train(name, out, options)
        results[name] = measure(load(out / "model", dtype="float32"), held_out)
        print(name, results[name], flush=True)
    report = {
        "trained_bytes": options.steps * WINDOW * BATCH,
        "held_out_bytes": len(held_out) * WINDOW * BATCH,
        "results": results,
    }
    options.results.mkdir(exist_ok=True)
    (options.results / "joint_tax.json").write_text(json.dumps(report, indent=2) + "\n")
    (options.results / "joint_tax.md").write_text(table(results))


if __name__ == "__main__":
    main()
