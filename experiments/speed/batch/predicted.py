"""What batches should be worth at the 1B shape on an H200: a roofline, nothing runs.

Every pass costs reading its weights and caches, or multiplying, in bfloat16; the entropy model runs
in float32, on the cores that keep all of its bits. Launches cost nothing. A draft of BLT-S runs the
encoder, too, whose states the decoder of the released 1B reads. Every round runs one chunk of the
global transformer; measured are up to two for BLT-DV from 8 rows on. The acceptance is that
published for Fast BLT's 3B model, French to English.
"""

import dataclasses

import jax
import jax.numpy as jnp

import bytelax
from bytelax import calculator
from bytelax.models.blt import BLT
from bytelax.models.presets import BLT_1B
from experiments.harness import floor, published_fast_blt
from experiments.harness.floor import H200, H200_EXACT

CONTEXT, BYTES_PER_PATCH = 2048, 4
# Name: bytes drafted, decoder passes that draft, bytes in each, and whether a window verifies.
METHODS = {
    "blt-s 8": (8, 8, 1, True),
    "blt-s 16": (16, 16, 1, True),
    "blt-dv 8, one step": (8, 1, 8, True),
    "blt-dv 16, one step": (16, 1, 16, True),
    "blt-d 16, one step": (16, 1, 16, False),
}


def speeds(batches):
    """{method: speeds}, beside the better of plain decoding with rows that wait and without."""
    module = BLT(dataclasses.replace(BLT_1B, decoder_input="embedding", block_size=16))
    params = jax.eval_shape(module.init, jax.random.key(0), jnp.zeros((1, 8), jnp.int32))["params"]
    model = bytelax.Model(module, params)
    weights = floor.weights(model)
    caches = floor.caches(model, CONTEXT, bytes_per_patch=BYTES_PER_PATCH)

    def takes(network, rows, width, passes=1.0):
        machine, itemsize = (H200_EXACT, 4) if network == "patcher" else (H200, 2)
        return floor.seconds(
            machine, getattr(weights, network), getattr(caches, network),
            passes=passes, rows=rows, width=width, itemsize=itemsize,
        )  # fmt: skip

    def window(rows, width):
        return sum(takes(network, rows, width) for network in ("decoder", "encoder", "patcher"))

    def plain(rows):
        closing = 1 - (1 - 1 / BYTES_PER_PATCH) ** rows  # some row's patch does
        alone = window(rows, 1) + takes(
            "global_", max(1, rows / BYTES_PER_PATCH), 1, passes=closing
        )
        waiting = longest(rows) * window(rows, 1) + takes("global_", rows, 1)
        return min(alone, waiting / BYTES_PER_PATCH)

    def own(name, rows):
        drafted, passes, width, verified = METHODS[name]
        emitted = calculator.bytes_per_round([rate(name)] * drafted) if verified else drafted
        patches = max(1, drafted / BYTES_PER_PATCH)
        cost = passes * takes("decoder", rows, width) + takes("global_", rows, patches)
        if name.startswith("blt-s"):
            cost += passes * takes("encoder", rows, width)
        if verified:
            cost += window(rows, drafted + 1)
        else:  # the pass that takes a block in fills the next one
            cost += sum(takes(network, rows, drafted) for network in ("encoder", "patcher"))
        return cost / emitted

    return {name: [plain(rows) / own(name, rows) for rows in batches] for name in METHODS}


def longest(rows, most=64):
    """Mean of the longest of so many patches that end at each byte with one chance."""
    chance = 1 / BYTES_PER_PATCH
    return sum(1 - (1 - (1 - chance) ** length) ** rows for length in range(most))


def rate(name):
    """Published acceptance of a method that verifies."""
    drafted = METHODS[name][0]
    method = "BLT-S" if name.startswith("blt-s") else "BLT-DV"
    (row,) = (
        row
        for row in published_fast_blt.rows()
        if row.table == "3B FrEn" and row.method == method and row.drafted == drafted
        and row.setting in ("one-step", f"k={drafted}")
    )  # fmt: skip
    return row.acceptance
