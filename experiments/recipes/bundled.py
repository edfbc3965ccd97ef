"""Trains the models that ship with bytelax, a stage a command.

    python -m experiments.recipes.bundled tiny --data DIR --runs runs

Stages, in order: entropy, tiny, tiny-d, tiny-lm, tiny-lm-heads, tiny-draft learn from the corpora
that docs/data.md names, in the directory `--data`. `tiny-more` trains `tiny` on plainly, as
`tiny-d` with its joint loss, to tell what that costs. Every stage is resumable: the same command
goes on where it stopped. `--steps` changes the length of a run, also of one that has begun;
docs/training.md tells how long each of them takes.
"""

import sys

from experiments.harness import bundled_data, recipes
from experiments.harness.recipes import Stack, data, muon

STAGES = ("entropy", "tiny", "tiny-d", "tiny-more", "tiny-lm", "tiny-lm-heads", "tiny-draft")


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    if stage == "entropy":
        return [
            "entropy", *Stack(96, 2, 256, window=128).flags("trunk"),
            *data(256, 32), *muon(steps or 1600),
        ]  # fmt: skip
    if stage == "tiny":
        return [
            "blt", "--patcher", f"{runs}/entropy",
            *recipes.blt(
                encoder=Stack(128, 1, 384, window=16), global_=Stack(256, 6, 704, heads=4),
                decoder=Stack(128, 3, 384, window=128), hashes=2039, threshold=recipes.THRESHOLD,
                patches=160,
            ),
            *data(512, 16), *muon(steps or 7400),
        ]  # fmt: skip
    if stage in ("tiny-d", "tiny-more"):
        joint = ["blt-d", *recipes.blocks(4, 8, 16, most_blocks=64)]
        return [
            *(joint if stage == "tiny-d" else ["blt"]), "--init", f"{runs}/tiny",
            *recipes.most_patches(160), *data(512, 32, seed=1),
            *muon(steps or 2400, muon_peak=0.008, cooldown=0.5),
        ]  # fmt: skip
    if stage == "tiny-lm":
        return [
            "byte-lm", *Stack(96, 12, 256, window=128).flags("trunk"),
            *data(512, 16), *muon(steps or 3700),
        ]  # fmt: skip
    if stage == "tiny-lm-heads":
        return [
            "heads", "--init", f"{runs}/tiny-lm",
            "--heads.early-exit.depths", "3", "6", "--heads.medusa.count", "3",
            "--heads.medusa.correction",
            "--heads.two-byte.depths", "6", "12", "--heads.eagle.depths", "3", "6", "12",
            "--own-outputs", "8", *data(256, 16, seed=2), *muon(steps or 1500),
        ]  # fmt: skip
    return [
        "byte-lm", *Stack(64, 2, 192, window=128).flags("trunk"), "--teacher", f"{runs}/tiny-lm",
        *data(256, 32), *muon(steps or 3700),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, STAGES, recipe, bundled_data.sources))
