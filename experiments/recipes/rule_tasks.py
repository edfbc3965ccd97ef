"""Trains the models of the rule tasks, a stage a command.

    python -m experiments.recipes.rule_tasks task-entropy --data DIR --runs runs

The stages learn from files of `rule_tasks_data`, in the directory `--data`. task-entropy
cuts the patches and task is the model that all others go on from, each over the same bytes at
the same rate, with three seeds: `task-more-1` as before, the control; `task-d-paper-1` with the
loss of the paper, `task-d-1` with ours, each for blocks of 4, 8 and 16 bytes. Every stage is
resumable: the same command goes on where it stopped. `--steps` changes the length of a run, also of
one that has begun.
"""

import sys

from bytelax.training.configs import Source
from experiments.harness import recipes
from experiments.harness.recipes import Stack, data, muon

THRESHOLD = 1.2034  # nats: 4.5 bytes per patch of the validation text, from `bytelax calibrate`
PATCHES = 80  # the most that 256 bytes have
SEEDS = (1, 2, 3)
BLOCK_SIZES = (4, 8, 16)
CONTINUED = tuple(
    f"{kind}-{seed}" for seed in SEEDS for kind in ("task-more", "task-d-paper", "task-d")
)


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    if stage == "task-entropy":
        return [
            "entropy", *Stack(64, 2, 192).flags("trunk"), *data(256, 16), *muon(steps or 400),
        ]  # fmt: skip
    if stage == "task":
        return [
            "blt", "--patcher", f"{runs}/task-entropy",
            *recipes.blt(
                encoder=Stack(64, 1, 192, window=16), global_=Stack(128, 4, 384),
                decoder=Stack(64, 2, 192, window=128), hashes=509, threshold=THRESHOLD,
                patches=PATCHES,
            ),
            *data(256, 16), *muon(steps or 2000),
        ]  # fmt: skip
    kind, seed = stage.rsplit("-", 1)
    how = {
        "task-more": ["blt"],
        "task-d-paper": ["blt-d", "--objective.corruption.block-sizes", *map(str, BLOCK_SIZES)],
        "task-d": ["blt-d", *recipes.blocks(*BLOCK_SIZES, most_blocks=48)],
    }[kind]
    return [
        *how, "--init", f"{runs}/task", *recipes.most_patches(PATCHES),
        *data(256, 32, seed=int(seed)), "--run.seed", seed,
        *muon(steps or 2000, peak=1e-3, muon_peak=0.004, cooldown=0.5),
    ]  # fmt: skip


def lines(folder):
    """What they learn from: a line an example."""
    return [Source(f"{folder}/train.txt", valid=f"{folder}/valid.txt", separator=r"\n")]


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, ("task-entropy", "task", *CONTINUED), recipe, lines))
