"""What `unmask` is asked and what it answers."""

from typing import Literal, NamedTuple

from jax.experimental import pallas as pl
from jaxtyping import Array, Bool, Float, Int


class Rule(NamedTuple):
    """Which masked cells to fill: always the surest, and besides it those `within` the bound.

    Attributes:
      kind: "confidence": cells whose likeliest id has a probability above `bound`. "entropy": the
        surest cells whose entropies add up to at most `bound` nats; "entropy-but-one" leaves the
        largest of them out of the sum. "all": every cell.
      bound: see there.
    """

    kind: Literal["confidence", "entropy", "entropy-but-one", "all"]
    bound: float = 0.0


class Block(NamedTuple):
    """As the arguments of `unmask`; arrays, or `jax.ShapeDtypeStruct`s for its sizes."""

    logits: Float[Array, "B C V"]
    ids: Int[Array, "B C"]
    masked: Bool[Array, "B C"]
    drawn: Int[Array, "B C"] | None = None


class Unmasked(NamedTuple):
    """What one pass makes of a block.

    Attributes:
      ids: the block, with the chosen cells filled.
      chosen: the cells filled.
      drawn: what every cell would be filled with.
      confidence: its probability under the model's own law.
    """

    ids: Int[Array, "B C"]
    chosen: Bool[Array, "B C"]
    drawn: Int[Array, "B C"]
    confidence: Float[Array, "B C"]


def cost(block: Block) -> pl.CostEstimate:
    """Of one kernel."""
    return pl.CostEstimate(
        flops=10 * block.logits.size,
        transcendentals=2 * block.logits.size,
        bytes_accessed=4 * (block.logits.size + 5 * block.ids.size),
    )
