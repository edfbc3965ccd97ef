"""Trains the BLTs of the study of decoder windows, a shape and a seed a command.

    python -m experiments.recipes.decoder_window window8-layers3 --data DIR --runs runs

A stage is named for the attention span of its decoder in bytes, the decoder's layers, and its seed:
`window128-layers3`, `window512-layers6-seed1`. Everything else is the same: 1.3M parameters of
global transformer, the entropy model of `tiny`, and the bytes read. Every stage is resumable.
"""

import re
import sys

from experiments.harness import bundled_data, recipes
from experiments.harness.recipes import Stack, data, muon

WINDOWS, LAYERS = (8, 32, 128, 512), (3, 6)
ENDS = (f"window{WINDOWS[0]}-layers3", f"window{WINDOWS[-1]}-layers3")  # have a second seed
STAGES = (
    *(f"window{window}-layers{layers}" for layers in LAYERS for window in WINDOWS),
    *(f"{stage}-seed1" for stage in ENDS),
)


def recipe(stage, runs, steps):
    """Arguments of `bytelax train`, but for the data."""
    window, layers, seed = re.fullmatch(r"window(\d+)-layers(\d+)(?:-seed(\d+))?", stage).groups()
    seed = int(seed or 0)
    return [
        "blt", "--patcher", "tiny",
        *recipes.blt(
            encoder=Stack(64, 1, 192, window=16), global_=Stack(160, 4, 448, heads=4),
            decoder=Stack(64, int(layers), 192, window=int(window)), hashes=1021,
            threshold=recipes.THRESHOLD, patches=160,
        ),
        *data(512, 16, seed=seed), "--run.seed", str(seed),
        *muon(steps or 320, cooldown=0.35, warmup=40),
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(recipes.main(__doc__, STAGES, recipe, bundled_data.sources))
