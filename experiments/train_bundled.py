"""Trains the models that ship with bytelax, and those of the quality study, a stage a command.

    python experiments/train_bundled.py tiny --data DIR --runs runs

Stages, in order: entropy, tiny, tiny-d, tiny-lm, tiny-lm-heads, tiny-draft learn from the corpora
that docs/data.md names, in the directory `--data`. task-entropy, task, and then task-d4, task-d8,
task-d16 and task-d learn from the files that `rule_tasks.py` writes. Every stage is resumable: the
same command goes on where it stopped. `--steps` changes the length of a run, also of one that has
begun; docs/training.md tells how long each of them takes.
"""

import argparse
import subprocess
import sys

from bundled_data import sources

from bytelax.training.documents import Source

THRESHOLD = 2.4749  # nats: 4.5 bytes a patch on the validation text, from `bytelax calibrate`
TASK_THRESHOLD = 2.0252  # the same for the entropy model of the tasks: 5 bytes a patch


def stack(name, dim, layers, *, heads=2, ffn_dim, window=None):
    sizes = {
        "dim": dim, "layers": layers, "heads": heads, "kv-heads": heads,
        "head-dim": dim // heads, "ffn-dim": ffn_dim, "window": window,
    }  # fmt: skip
    return [word for key, value in sizes.items() for word in (f"--model.{name}.{key}", str(value))]


def data(window, batch, *, seed=0):
    flags = {"window": window, "batch": batch, "seed": seed}
    return [word for key, value in flags.items() for word in (f"--data.{key}", str(value))]


def muon(steps, *, peak=3e-3, muon_peak=0.012, weight_decay=0.05, cooldown=0.2, warmup=100):
    """A constant rate and a cooldown: a run can be made longer while it lasts."""
    flags = {
        "name": "muon", "steps": steps, "peak": peak, "muon-peak": muon_peak,
        "weight-decay": weight_decay, "cooldown": int(steps * cooldown), "warmup": warmup,
    }  # fmt: skip
    return [word for key, value in flags.items() for word in (f"--optimizer.{key}", str(value))]


def blocks(*sizes, most_blocks):
    return [
        "--objective.corruption.block-sizes", *map(str, sizes),
        "--objective.corruption.mid-patch", "0.5", "--objective.corruption.t-for-each", "block",
        "--objective.corruption.most-blocks", str(most_blocks), "--objective.mask-loss", "mean",
    ]  # fmt: skip


def entropy_patches(threshold):
    return [
        "--model.patching.threshold", str(threshold), "--model.patching.max-patch-length", "8",
        "--model.decoder-input", "embedding",
    ]  # fmt: skip


def bundled(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    if stage == "entropy":
        return [
            "entropy", *stack("trunk", 96, 2, ffn_dim=256, window=128),
            *data(256, 32), *muon(steps or 1600),
        ]  # fmt: skip
    if stage == "tiny":
        return [
            "blt", "--patcher", f"{runs}/entropy",
            *stack("encoder", 128, 1, ffn_dim=384, window=16),
            *stack("global-transformer", 256, 6, heads=4, ffn_dim=704),
            *stack("decoder", 128, 3, ffn_dim=384, window=8),
            "--model.hashing.vocab", "2039", *entropy_patches(THRESHOLD),
            "--objective.max-patches", "160", *data(512, 16), *muon(steps or 7400),
        ]  # fmt: skip
    if stage == "tiny-d":
        return [
            "blt-d", "--init", f"{runs}/tiny", *blocks(4, 8, 16, most_blocks=64),
            "--objective.max-patches", "160",
            *data(512, 16, seed=1), *muon(steps or 2400, muon_peak=0.008, cooldown=0.5),
        ]  # fmt: skip
    if stage == "tiny-lm":
        return [
            "byte-lm", *stack("trunk", 96, 12, ffn_dim=256, window=128),
            *data(512, 16), *muon(steps or 3700),
        ]  # fmt: skip
    if stage == "tiny-lm-heads":
        return [
            "heads", "--init", f"{runs}/tiny-lm",
            "--heads.exits", "3", "6", "--heads.bytes-ahead", "3", "--heads.correction",
            "--heads.two-byte", "6", "12", "--heads.draft-layer", "3", "6", "12",
            "--own-outputs", "8", *data(256, 16, seed=2), *muon(steps or 1500),
        ]  # fmt: skip
    return [
        "byte-lm", *stack("trunk", 64, 2, ffn_dim=192, window=128), "--teacher", f"{runs}/tiny-lm",
        *data(256, 32), *muon(steps or 3700),
    ]  # fmt: skip


def task(stage, runs, steps):
    if stage == "task-entropy":
        return [
            "entropy", *stack("trunk", 64, 2, ffn_dim=192), *data(256, 16), *muon(steps or 400),
        ]  # fmt: skip
    if stage == "task":
        return [
            "blt", "--patcher", f"{runs}/task-entropy",
            *stack("encoder", 64, 1, ffn_dim=192, window=16),
            *stack("global-transformer", 128, 4, ffn_dim=384),
            *stack("decoder", 64, 2, ffn_dim=192, window=8),
            "--model.hashing.vocab", "509", *entropy_patches(TASK_THRESHOLD),
            "--objective.max-patches", "128", *data(256, 16), *muon(steps or 1600),
        ]  # fmt: skip
    sizes = {"task-d4": (4,), "task-d8": (8,), "task-d16": (16,), "task-d": (4, 8, 16)}[stage]
    return [
        "blt-d", "--init", f"{runs}/task", *blocks(*sizes, most_blocks=32),
        "--objective.max-patches", "128", *data(256, 16, seed=1), *muon(steps or 800),
    ]  # fmt: skip


BUNDLED = ["entropy", "tiny", "tiny-d", "tiny-lm", "tiny-lm-heads", "tiny-draft"]
TASKS = ["task-entropy", "task", "task-d4", "task-d8", "task-d16", "task-d"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stage", choices=[*BUNDLED, *TASKS])
    parser.add_argument("--data", required=True)
    parser.add_argument("--runs", default="runs")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    of_tasks = options.stage in TASKS
    arguments = (task if of_tasks else bundled)(options.stage, options.runs, options.steps)
    lines = Source(f"{options.data}/train.txt", valid=f"{options.data}/valid.txt", separator=r"\n")
    command = [sys.executable, "-m", "bytelax.cli", "train", *arguments]
    command += ["--out", f"{options.runs}/{options.stage}", "--run.validation-batches", "16"]
    command += ["--data.sources", *map(str, [lines] if of_tasks else sources(options.data))]
    command += ["--run.validate-every", "200", "--run.save-every", "200", "--run.log-every", "20"]
    raise SystemExit(subprocess.call(command))


if __name__ == "__main__":
    main()
