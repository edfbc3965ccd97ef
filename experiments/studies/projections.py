"""What is published of a byte transformer of 85M that drafts for itself, computed again.

Sizes of its heads, from shapes alone. Published speeds are projections: half of the layers draft, a
share a of the bytes ends there, and verifying costs nothing, which makes 1 / (1 - a / 2). "With
verification": all layers verify, going on from the states of the exit, at the best draft length, by
the formulas of the calculator. With the two-byte head every pass over the first half drafts a pair;
what is published of it does not follow from this formula. Nothing runs.

    python -m experiments.studies.projections
"""

import dataclasses
import math

import jax

from bytelax import calculator
from bytelax.models import presets
from bytelax.models.byte_lm import ByteLM
from bytelax.models.configs import HeadsConfig
from bytelax.options import EarlyExitHead, MedusaHead, TwoByteHead
from bytelax.systems import trained
from experiments import study
from experiments.harness import roofline
from experiments.study import Column

MIDDLE, LAST = 6, 12  # layers
LONGEST = 16  # bytes of a draft
HEADS = {
    "exit head": ("197k", HeadsConfig(early_exit=EarlyExitHead(depths=(MIDDLE,)))),
    "two-byte head": ("1.18M", HeadsConfig(two_byte=TwoByteHead(depths=(LAST,)))),
    "three heads for four bytes": ("+2.76 %", HeadsConfig(medusa=MedusaHead(count=3))),
}
# Chance that a byte of the exit is kept, of the second byte of a pair, and the published speed.
SPEEDS = {
    "early exit": (0.42, None, 1.27),
    "early exit, exit head": (0.85, None, 1.74),
    "exit and two-byte head": (0.85, 0.58, 2.25),
}
COLUMNS = [
    Column("what", "what"),
    Column("published", "published"),
    Column("parameters", "parameters", ",d"),
    Column("of the model", "share", "+.2%"),
    Column("kept of the exit", "exit", ".0%"),
    Column("of second bytes", "second", ".0%"),
    Column("without verification", "unverified", ".2f"),
    Column("with verification", "verified", ".2f"),
    Column("draft length", "draft_length"),
]


def main():
    options = study.parser(__doc__).parse_args()
    asked = [{"what": what} for what in (*HEADS, *SPEEDS)]
    study.run("projections", options, asked, measure, timed=False)


def measure(setting: dict) -> dict:
    what = setting["what"]
    return size(*HEADS[what]) if what in HEADS else speed(*SPEEDS[what])


def size(published: str, heads: HeadsConfig) -> dict:
    """Parameters of heads, and their share of the model's without them."""
    config = presets.BYTE_LM_85M
    ids = jax.ShapeDtypeStruct((1, 2), "int32")
    model = jax.eval_shape(ByteLM(config).init, jax.eval_shape(jax.random.key, 0), ids)
    own = parameters(trained.shapes(dataclasses.replace(config, heads=heads)))
    return {"published": published, "parameters": own, "share": own / parameters(model)}


def parameters(shapes) -> int:
    """Number of parameters of a tree."""
    return sum(math.prod(each.shape) for each in jax.tree.leaves(shapes))


def speed(exit_: float, second: float | None, published: float) -> dict:
    """The projected speed, and that of the best draft length if verification costs its layers."""
    speeds = {}
    pair = [exit_] if second is None else [exit_, second]
    for length in range(len(pair), LONGEST + 1, len(pair)):
        chances = pair * (length // len(pair))
        kept = [math.prod(chances[: place + 1]) for place in range(length)]
        method = "early-exit" if second is None else "composed"
        layers = roofline.layer_shares(LAST, {"exit_layer": MIDDLE}, method, length)
        speeds[length] = calculator.bytes_per_round(kept) / sum(layers)
    best = max(speeds, key=speeds.__getitem__)
    return {
        "published": published, "exit": exit_, "second": second,
        "unverified": 1 / (1 - exit_ / 2) if second is None else None,
        "verified": speeds[best], "draft_length": best,
    }  # fmt: skip


if __name__ == "__main__":
    main()
