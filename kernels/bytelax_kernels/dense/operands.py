"""The arguments of `dense`, as its implementations take them."""

import dataclasses
from typing import NamedTuple

import jax
from jaxtyping import Array, Float


class Operands(NamedTuple):
    """Arrays of a product, or references to them; those that are None take no part in it.

    Attributes:
      rows: the rows that are multiplied.
      kernel: the matrix; of a gated product the gate's columns, then the other ones.
      scale: of the RMSNorm in front of the product.
      onto: what the product is added to.
    """

    rows: Float[Array, "R D"]
    kernel: Float[Array, "D N"]
    scale: Float[Array, " D"] | None = None
    onto: Float[Array, "R F"] | None = None


@dataclasses.dataclass(frozen=True)
class Form:
    """What a product does besides multiplying.

    Attributes:
      eps: added to the mean square in the norm.
      times: how many times `Operands.onto` is added.
      gated: whether the result is `silu(gate) * other`, half as wide as the matrix.
      precision: precision of the product.
    """

    eps: float = 0.0
    times: int = 1
    gated: bool = False
    precision: jax.lax.Precision | None = None
