"""Trains drafters for the bundled BLTs, which stay as they are; a stage a command.

    python -m experiments.recipes.drafters heads --data DIR --runs runs/drafters

Stages: `sequential`, `block` and `multi-byte` train one kind of head each for `tiny`; `heads` all
of them in one run, which shares the pass of the frozen model, and `bundled` those that `tiny` is
bundled with, the first and the last; `table` the table of the byte before for the blocks of
`tiny-d`, and `latents` the head of latents of `tiny`. The same command goes on where it stopped.
`--steps` changes the length of a run.
"""

import sys

from experiments.harness import bundled_data, recipes
from experiments.harness.recipes import data, muon

WINDOW, BATCH, PATCHES = 256, 16, 96
STEPS = 2400
DEPTHS = ("1", "2", "3")  # of the decoder of `tiny`
HEADS = {
    "sequential": [
        "--heads.eagle.depths",
        *DEPTHS,
        "--heads.eagle.window",
        "64",
        "--heads.eagle.latent",
    ],
    "block": [
        "--heads.dflash.depths",
        *DEPTHS,
        "--heads.dflash.window",
        "64",
        "--heads.dflash.latent",
        "--heads.dflash.layers",
        "2",
        "--heads.dflash.block-size",
        "8",
    ],
    "multi-byte": ["--heads.medusa.count", "4", "--heads.medusa.correction"],
}
CONFIDENCE = {
    "sequential": "--heads.eagle.confidence",
    "block": "--heads.dflash.confidence",
}
LOSS = ["--loss-of", "lk", "--decay", "4", "--own-outputs", "6", "--blocks", "32"]
TOGETHER = {"heads": tuple(HEADS), "bundled": ("sequential", "multi-byte")}
STAGES = (*HEADS, *TOGETHER, "table", "latents")
# With 256 hidden units the head of latents has 4.4 % of the weights of the global transformer.
LATENTS = ["--heads.blt-s.ffn-dim", "256", "--loss-of", "kl"]


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    of_blocks, steps = stage == "table", steps or STEPS
    # The entries of a table begin at 0 and end at several nats.
    rate = {"peak": 0.03, "weight_decay": 0.0} if of_blocks else {}
    if stage == "latents":
        return [
            "heads", "--init", "tiny", *LATENTS, "--max-patches", str(PATCHES),
            *data(WINDOW, BATCH, seed=3), *muon(steps, cooldown=0.4, warmup=min(60, steps // 4)),
        ]  # fmt: skip
    if of_blocks:
        heads = ["--heads.blt-d.block-size", "8"]
    else:
        kinds = TOGETHER.get(stage, (stage,))
        heads = [flag for kind in kinds for flag in HEADS[kind]]
        heads += [CONFIDENCE[kind] for kind in kinds if kind in CONFIDENCE]
    return [
        "heads", "--init", "tiny-d" if of_blocks else "tiny", *heads, *LOSS,
        "--max-patches", str(PATCHES), *data(WINDOW, BATCH, seed=3),
        *muon(steps, cooldown=0.4, warmup=min(60, steps // 4), **rate),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, STAGES, recipe, bundled_data.sources))
