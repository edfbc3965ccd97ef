"""Trains drafters of `tiny-lm`, which stays as it is, on more and more text; a stage a command.

    python -m experiments.recipes.draft_curve layer-1 --data DIR --runs RUNS

Stages: `layer-1`, `layer-3`, `layer-10` and `layer-30`, an EAGLE layer alone on so many million
bytes of text; `heads-3` and `small-3`, heads and a draft model on as many bytes as `layer-3`, with
the same optimizer; and both drafters with other seeds, as `layer-3-seed1`. The same command goes on
where it stopped.
"""

import sys

from experiments.harness import bundled_data, recipes
from experiments.harness.recipes import Stack, data, muon

WINDOW, BATCH = 256, 16
LAYER = ["--heads.eagle.depths", "3", "6", "12"]
HEADS = [
    "--heads.early-exit.depths", "6", "--heads.medusa.count", "3", "--heads.medusa.correction",
    "--heads.two-byte.depths", "6", "12",
]  # fmt: skip
# The best loss of a draft layer of `tiny`: LOG.md, 25 November 2026.
LOSS = ["--loss-of", "lk", "--decay", "4", "--own-outputs", "6"]
MEGABYTES = {
    "layer-1": 1, "layer-3": 3, "layer-10": 10, "layer-30": 30, "heads-3": 3, "small-3": 3,
}  # fmt: skip
SEEDS = {stage: tuple(f"{stage}-seed{n}" for n in (1, 2)) for stage in ("layer-3", "small-3")}
STAGES = (*MEGABYTES, *(run for runs in SEEDS.values() for run in runs))


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    del runs
    stage, _, seed = stage.partition("-seed")
    seed = int(seed or 0)
    steps = steps or MEGABYTES[stage] * 10**6 // (WINDOW * BATCH)
    optimizer = muon(steps, cooldown=0.4, warmup=min(60, steps // 4))
    text = [*data(WINDOW, BATCH, seed=3 + seed), "--run.seed", str(seed)]
    if stage == "small-3":
        small = Stack(64, 2, 192, window=128).flags("trunk")
        return ["byte-lm", *small, "--teacher", "tiny-lm", *text, *optimizer]
    heads = HEADS if stage == "heads-3" else LAYER
    return ["heads", "--init", "tiny-lm", *heads, *LOSS, *text, *optimizer]


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, STAGES, recipe, bundled_data.sources))
