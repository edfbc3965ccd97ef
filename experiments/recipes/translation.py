"""Trains the models that translate German and French into English, a stage a command.

    python -m experiments.recipes.translation entropy --data DIR --runs runs

The stages learn from sentence pairs of the corpora that docs/data.md names, in the directory
`--data`. entropy cuts the patches and blt is the model that all others go on from, each over the
same bytes at the same rate: blt-more as before, the control; blt-d-paper with the loss of the
paper, blt-d with ours, both for blocks of 4, 8 and 16 bytes. Every stage is resumable: the same
command goes on where it stopped. `--steps` changes the length of a run, also of one that has begun.
"""

import sys

from bytelax.training.configs import Source
from experiments.harness import recipes
from experiments.harness.recipes import Stack, data, muon

THRESHOLD = 2.2463  # nats: 4.5 bytes per patch of the validation text, from `bytelax calibrate`
PATCHES = 120  # the most that 256 bytes have
BLOCK_SIZES = (4, 8, 16)
LANGUAGES = {"deu": "de", "fra": "fr"}  # corpus to what its lines begin with
CONTINUED = {
    "blt-more": ["blt"],
    # No more blocks than patches: they all start at one.
    "blt-d-paper": [
        "blt-d", "--objective.corruption.block-sizes", *map(str, BLOCK_SIZES),
        "--objective.corruption.most-blocks", str(PATCHES),
    ],
    "blt-d": ["blt-d", *recipes.blocks(*BLOCK_SIZES, most_blocks=16)],
}  # fmt: skip


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    if stage == "entropy":
        return [
            "entropy", *Stack(96, 2, 256, window=128).flags("trunk"),
            *data(256, 16), *muon(steps or 700),
        ]  # fmt: skip
    if stage == "blt":
        return [
            "blt", "--patcher", f"{runs}/entropy",
            *recipes.blt(
                encoder=Stack(128, 1, 384, window=16), global_=Stack(256, 6, 704, heads=4),
                decoder=Stack(128, 3, 384, window=128), hashes=2039, threshold=THRESHOLD,
                patches=PATCHES,
            ),
            *data(256, 64), *muon(steps or 3700),
        ]  # fmt: skip
    return [
        *CONTINUED[stage], "--init", f"{runs}/blt", *recipes.most_patches(PATCHES),
        *data(256, 64, seed=1), *muon(steps or 2450, muon_peak=0.008, cooldown=0.5),
    ]  # fmt: skip


def pairs(folder):
    """What they learn from: a pair an example, half of the windows for each language."""
    return [
        Source(
            f"{folder}/tatoeba_{corpus}_eng/train.tsv.gz",
            valid=f"{folder}/tatoeba_{corpus}_eng/valid.tsv",
            template=rf"{short}: {{0}}\nen: {{1}}\n",
        )
        for corpus, short in LANGUAGES.items()
    ]


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, ("entropy", "blt", *CONTINUED), recipe, pairs))
