"""What a byte would take on an H200, from operations counted and bytes read. Nothing is timed."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax

from bytelax.calculator import Sizes
from bytelax.models import layers
from bytelax.models.blt import BLT
from bytelax.models.configs import HeadsConfig, TransformerConfig
from experiments.harness import evidence, floor, random_blt, study
from experiments.harness.one_b import one_b

TERABYTES = floor.H200.bytes_per_second / 1e12
AHEAD = 4  # multi-byte heads, as `tiny` has them
MICROSECONDS = (1.5, 2.5)  # from the start of one operation to that of the next, at the least
CONTEXT, PATCH = 512, 4.4  # bytes
# Drafts of eight bytes, whose rounds are reckoned.
KEPT = {
    "blt-s": {"model": "tiny", "draft_length": 8},
    "eagle": {"model": "tiny", "draft_length": 8},
    "blt-dv": {"model": "tiny-d", "block_size": 8, "unmask": "one-step"},
}
HEADER = (
    "method", "operations per round", "GB per round", "ms per round", "bytes kept", "ms per byte",
    "beside plain",
)  # fmt: skip


def section(operations: dict[str, float]) -> list[str]:
    """Lines of Markdown.

    Args:
      operations: of a round at one row of the 1B shape on an H200, by method, "ar" among them.
    """
    read, kept = gigabytes(), {"ar": 1.0} | bytes_kept()
    operations = {name: operations[name] for name in kept}
    milliseconds = {
        name: [
            read[name] / TERABYTES + count * each / 1e3 for each in MICROSECONDS
        ]
        for name, count in operations.items()
    }  # fmt: skip
    a_byte = {name: [ms / kept[name] for ms in both] for name, both in milliseconds.items()}
    rows = [
        (
            name, round(operations[name]), f"{read[name]:.2f}", between(milliseconds[name], 2),
            f"{kept[name]:.2f}", between(a_byte[name], 2),
            between(sorted(p / own for p, own in zip(a_byte["ar"], a_byte[name], strict=True)), 2),
        )
        for name in sorted(operations, key=lambda name: name != "ar")
    ]  # fmt: skip
    return [
        "## A byte on the H200, reckoned",
        "",
        f"One row of {CONTEXT} bytes: reading what a round's passes need at {TERABYTES} TB a "
        f"second, and {MICROSECONDS[0]:g} to {MICROSECONDS[1]:g} microseconds for each operation. "
        "Both were assumptions. An H100 timed later took about 10 microseconds for each operation "
        "([accelerator/decode](../../accelerator/decode/README.md)). Bytes kept are those of the "
        "trained `tiny` and its drafters on 64 natural prompts at temperature 1; what drafters of "
        "a model of this size would keep, nobody has measured.",
        "",
        *study.table(HEADER, rows),
    ]


def in_any_row(chance: float, rows: int) -> float:
    """The chance that something happens in at least one of so many rows."""
    return 1 - (1 - chance) ** rows


def heads_of(decoder: TransformerConfig) -> HeadsConfig:
    """The heads of the 1B: those of `tiny`, in its sizes."""
    heads = random_blt.draft_heads(decoder)
    return dataclasses.replace(heads, bytes_ahead=AHEAD, correction=True)


class Networks(NamedTuple):
    """The networks of the 1B: numbers that a pass reads, and the shapes of the parameters."""

    weights: Sizes
    cached: Sizes  # of a row
    params: Any


@functools.cache
def networks() -> Networks:
    config = one_b()
    config = dataclasses.replace(config, heads=heads_of(config.decoder))
    module = BLT(config)
    ids = jax.ShapeDtypeStruct((1, 8), "int32")
    params = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    cached = floor.caches_of(config, CONTEXT, bytes_per_patch=PATCH)
    return Networks(floor.weights_of(module, params), cached, params)


def gigabytes() -> dict[str, float]:
    """What a round reads, by method: weights in bfloat16, the entropy model in float32, caches."""
    weights, cached, params = networks()
    decoder, encoder, global_, patcher = (
        (weights[n] + cached[n]) * (4 if n == 3 else 2) / 1e9 for n in range(4)
    )
    whole = decoder + encoder + global_ + patcher
    layer = 2 * layers.weights(params["heads"]["draft_layer"]) / 1e9
    return {
        "ar": decoder + encoder + patcher + global_ / PATCH,
        "blt-s": whole + 8 * (decoder + encoder),
        "eagle": whole + 8 * layer,
        "blt-dv": whole + decoder,
    }


def bytes_kept() -> dict[str, float]:
    """Of a round, by method, at temperature 1."""
    return {
        method: evidence.of_a_blt(method=method, temperature=1.0, **how)["bytes_per_round"]["value"]
        for method, how in KEPT.items()
    }


def between(both, digits: int) -> str:
    low, high = (f"{x:.{digits}f}" for x in both)
    return low if low == high else f"{low} to {high}"
