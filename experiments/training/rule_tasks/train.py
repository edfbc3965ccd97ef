"""Trains the models of the rule tasks, a stage a command.

    python -m experiments.training.rule_tasks.train task-entropy --data DIR --runs runs

task-entropy, task, and then task-d4, task-d8, task-d16 and task-d learn from the files that
`write.py` makes, in the directory `--data`. task-d4-again is task-d4 with other random numbers: the
first lost two tasks within 200 steps, as training at this rate may. Every stage is resumable: the
same command goes on where it stopped. `--steps` changes the length of a run, also of one that has
begun.
"""

import sys

from bytelax.training.configs import Source
from experiments.harness import recipes
from experiments.harness.recipes import Stack, data, muon

THRESHOLD = 2.0252  # nats: 5 bytes per patch of the validation text, from `bytelax calibrate`
AGAIN = "task-d4-again"
BLOCK_SIZES = {
    "task-d4": (4,),
    AGAIN: (4,),
    "task-d8": (8,),
    "task-d16": (16,),
    "task-d": (4, 8, 16),
}


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
                decoder=Stack(64, 2, 192, window=8), hashes=509, threshold=THRESHOLD, patches=128,
            ),
            *data(256, 16), *muon(steps or 2400),
        ]  # fmt: skip
    return [
        "blt-d", "--init", f"{runs}/task", *recipes.blocks(*BLOCK_SIZES[stage], most_blocks=32),
        *recipes.most_patches(128), *data(256, 16, seed=2 if stage == AGAIN else 1),
        *muon(steps or 700),
    ]  # fmt: skip


def lines(folder):
    """What they learn from: a line an example."""
    return [Source(f"{folder}/train.txt", valid=f"{folder}/valid.txt", separator=r"\n")]


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, ("task-entropy", "task", *BLOCK_SIZES), recipe, lines))
