"""What `verify_attention` works on, and the layout of its products: queries by key head."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention.sight import Sight, flags


class Inputs(NamedTuple):
    """As the arguments of `verify_attention`; arrays, or `jax.ShapeDtypeStruct`s for its sizes."""

    queries: Float[Array, "B W H D"]
    keys: Float[Array, "B K S D"]
    values: Float[Array, "B K S D"]
    sight: Sight

    @property
    def sizes(self) -> "Sizes":
        batch, window, heads, dim = self.queries.shape
        kv_heads, slots = self.keys.shape[1:3]
        return Sizes(batch, window, kv_heads, heads // kv_heads, slots, dim)


class Sizes(NamedTuple):
    """Of the axes.

    Attributes:
      batch: B.
      window: W, queries of a row.
      kv_heads: K.
      group: G, query heads that read one key head.
      slots: S.
      dim: D.
    """

    batch: int
    window: int
    kv_heads: int
    group: int
    slots: int
    dim: int

    @property
    def rows(self) -> int:
        """Queries of a key head."""
        return self.group * self.window


def by_key_head(inputs: Inputs) -> Float[Array, "B K GW D"]:
    """The queries; query w of head g of its group is row `g W + w`."""
    batch, window, kv_heads, group, _, dim = inputs.sizes
    queries = inputs.queries.reshape(batch, window, kv_heads, group, dim)
    return queries.transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, group * window, dim)


def by_query(attended: Float[Array, "B K GW D"], inputs: Inputs) -> Float[Array, "B W H D"]:
    """The way back, in the dtype of the queries."""
    batch, window, heads, dim = inputs.queries.shape
    attended = attended.reshape(batch, heads, window, dim)
    return attended.swapaxes(1, 2).astype(inputs.queries.dtype)


def limits(inputs: Inputs) -> Int[Array, "B 3 GW"]:
    """First and last visible position and the flags of the cells, for each of these rows."""
    sight = inputs.sight
    each = jnp.stack([sight.first, sight.last, flags(sight)], axis=1)
    return jnp.tile(each, (1, 1, inputs.sizes.group))


def cost(inputs: Inputs) -> pl.CostEstimate:
    """Of a kernel whose queries see all slots; fewer cost less."""
    queries, keys, values, _ = inputs
    scored = queries.shape[1] * queries.shape[2] * keys.shape[0] * keys.shape[2]
    return pl.CostEstimate(
        flops=4 * scored * keys.shape[3],
        transcendentals=scored,
        bytes_accessed=2 * queries.nbytes + keys.nbytes + values.nbytes,
    )


def precision(dtype) -> jax.lax.Precision | None:
    """Of a product: accelerators would round float32 to bfloat16 or to 19 bits."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
