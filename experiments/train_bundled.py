"""Trains the models that ship with bytelax, one stage a command, each of them resumable.

    python experiments/train_bundled.py entropy --data DIR --runs runs
    python experiments/train_bundled.py tiny --data DIR --runs runs
    python experiments/train_bundled.py tiny-drafting --data DIR --runs runs
    python experiments/train_bundled.py tiny-lm --data DIR --runs runs
    python experiments/train_bundled.py tiny-lm-heads --data DIR --runs runs
    python experiments/train_bundled.py tiny-draft --data DIR --runs runs

`--data` holds the corpora that docs/data.md names. The sizes are those that two cores train in an
afternoon; on an accelerator raise `--steps`.
"""

import argparse
import subprocess
import sys

from bundled_data import sources

THRESHOLD = 2.4749  # nats: 4.5 bytes a patch on the validation text, from `bytelax calibrate`


def stack(name, dim, layers, *, heads=2, ffn_dim, window=128):
    sizes = {
        "dim": dim, "layers": layers, "heads": heads, "kv-heads": heads,
        "head-dim": dim // heads, "ffn-dim": ffn_dim, "window": window,
    }  # fmt: skip
    return [word for key, value in sizes.items() for word in (f"--model.{name}.{key}", str(value))]


BLOCKS = [
    "--objective.corruption.block-sizes", "4", "8", "16",
    "--objective.corruption.mid-patch", "0.5", "--objective.corruption.t-for-each", "block",
    "--objective.mask-loss", "mean", "--objective.max-patches", "144",
]  # fmt: skip


def recipe(stage, runs):
    """Arguments of `bytelax train`, but for the data."""
    if stage == "entropy":
        return [
            "entropy", *stack("trunk", 96, 2, ffn_dim=256),
            "--data.window", "256", "--data.batch", "32",
            "--optimizer.steps", "1600", "--optimizer.peak", "4e-3", "--optimizer.warmup", "80",
        ]  # fmt: skip
    if stage == "tiny":
        return [
            "blt-d", "--patcher", f"{runs}/entropy",
            *stack("encoder", 128, 1, ffn_dim=384),
            *stack("global-transformer", 256, 6, heads=4, ffn_dim=704),
            *stack("decoder", 128, 3, ffn_dim=384),
            "--model.hashing.vocab", "2039",
            "--model.patching.threshold", str(THRESHOLD), "--model.patching.max-patch-length", "8",
            *BLOCKS, "--objective.corruption.most-blocks", "32",
            "--data.window", "512", "--data.batch", "8",
            "--optimizer.steps", "3300", "--optimizer.peak", "2e-3", "--optimizer.warmup", "150",
        ]  # fmt: skip
    if stage == "tiny-drafting":
        # Goes on from `tiny` towards what the drafters meet: blocks with most bytes masked, more of
        # them, and the exit behind the first decoder layer.
        return [
            "blt-d", "--init", f"{runs}/tiny",
            *BLOCKS, "--objective.corruption.most-blocks", "64",
            "--objective.corruption.smallest-t", "0.4",
            "--objective.exit-layer", "1",
            "--data.window", "512", "--data.batch", "8", "--data.seed", "1",
            "--optimizer.steps", "1800", "--optimizer.peak", "1.5e-3", "--optimizer.warmup", "60",
        ]  # fmt: skip
    if stage == "tiny-lm":
        return [
            "byte-lm", *stack("trunk", 96, 12, ffn_dim=256),
            "--data.window", "512", "--data.batch", "8",
            "--optimizer.steps", "1800", "--optimizer.peak", "2e-3", "--optimizer.warmup", "150",
        ]  # fmt: skip
    if stage == "tiny-lm-heads":
        return [
            "heads", "--init", f"{runs}/tiny-lm",
            "--heads.exits", "3", "6", "--heads.bytes-ahead", "3", "--heads.correction",
            "--heads.two-byte", "6", "12", "--heads.draft-layer", "3", "6", "12",
            "--data.window", "256", "--data.batch", "16", "--data.seed", "2",
            "--optimizer.steps", "1000", "--optimizer.peak", "3e-3", "--optimizer.warmup", "50",
        ]  # fmt: skip
    return [
        "byte-lm", *stack("trunk", 64, 2, ffn_dim=192), "--teacher", f"{runs}/tiny-lm",
        "--data.window", "256", "--data.batch", "32",
        "--optimizer.steps", "700", "--optimizer.peak", "4e-3", "--optimizer.warmup", "60",
    ]  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "stage",
        choices=["entropy", "tiny", "tiny-drafting", "tiny-lm", "tiny-lm-heads", "tiny-draft"],
    )
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    command = [sys.executable, "-m", "bytelax.cli", "train", *recipe(options.stage, options.runs)]
    command += ["--out", f"{options.runs}/{options.stage}", "--run.validation-batches", "16"]
    command += ["--data.sources", *map(str, sources(options.data))]
    command += ["--run.validate-every", "400", "--run.save-every", "400", "--run.log-every", "20"]
    if options.steps:
        command += ["--optimizer.steps", str(options.steps)]
    raise SystemExit(subprocess.call(command))


if __name__ == "__main__":
    main()
