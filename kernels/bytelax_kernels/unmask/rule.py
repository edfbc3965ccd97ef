"""Inputs, rules and results of `unmask`."""

from typing import Literal, NamedTuple

from jaxtyping import Array, Bool, Float, Int


class Rule(NamedTuple):
    """Which masked cells to fill in; the most certain one is always filled in.

    Attributes:
      kind: "confidence" fills cells whose most likely id has a probability above `bound`.
        "entropy" fills cells in order of increasing entropy, while their entropies sum to at most
        `bound` nats. "entropy-but-one" does not count the largest of these entropies, that of the
        last cell. "all" fills every cell.
      bound: the bound of `kind`.
    """

    kind: Literal["confidence", "entropy", "entropy-but-one", "all"]
    bound: float = 0.0


class Block(NamedTuple):
    """Arguments of `unmask`, as arrays, or as `jax.ShapeDtypeStruct`s for their sizes."""

    logits: Float[Array, "B C V"]
    ids: Int[Array, "B C"]
    masked: Bool[Array, "B C"]
    drawn: Int[Array, "B C"] | None = None


class Unmasked(NamedTuple):
    """The result of one unmasking step.

    Attributes:
      ids: the block with the chosen cells filled in.
      chosen: which cells were filled in.
      drawn: the id that each cell would be filled with.
    """

    ids: Int[Array, "B C"]
    chosen: Bool[Array, "B C"]
    drawn: Int[Array, "B C"]
