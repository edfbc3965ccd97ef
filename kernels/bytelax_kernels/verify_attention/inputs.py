"""Inputs of `verify_attention`, and the layout of its matmuls, with queries grouped by key head."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention.sight import Sight, flags

# By head, or in lines: the heads of a slot one after another.
Cache = Float[Array, "B K S D"] | Float[Array, "B S KD"]


class Inputs(NamedTuple):
    """Arguments of `verify_attention`, as arrays, or as `jax.ShapeDtypeStruct`s for their sizes."""

    queries: Float[Array, "B W H D"]
    keys: Cache
    values: Cache
    sight: Sight

    @property
    def sizes(self) -> "Sizes":
        """Sizes of the axes."""
        batch, window, heads, dim = self.queries.shape
        kv_heads = self.keys.shape[2] // dim if self.in_lines else self.keys.shape[1]
        return Sizes(batch, window, kv_heads, heads // kv_heads, self.keys.shape[-2], dim)

    @property
    def in_lines(self) -> bool:
        """Whether keys and values are stored in lines, [B, S, K D]."""
        return self.keys.ndim == 3


class Sizes(NamedTuple):
    """Sizes of the axes.

    Attributes:
      batch: B, number of rows.
      window: W, number of queries per row.
      kv_heads: K, number of key heads.
      group: G, number of query heads per key head.
      slots: S, number of slots of the cache.
      dim: D, width of a head.
    """

    batch: int
    window: int
    kv_heads: int
    group: int
    slots: int
    dim: int

    @property
    def rows(self) -> int:
        """Number of queries per key head, G W."""
        return self.group * self.window


def heads_apart(inputs: Inputs) -> Inputs:
    """The same inputs with keys and values by head, [B, K, S, D]."""
    if not inputs.in_lines:
        return inputs
    batch, slots, _ = inputs.keys.shape
    shape = (batch, slots, inputs.sizes.kv_heads, inputs.sizes.dim)
    keys, values = (x.reshape(shape).swapaxes(1, 2) for x in inputs[1:3])
    return inputs._replace(keys=keys, values=values)


def heads_in_lines(inputs: Inputs) -> Inputs:
    """The same inputs with keys and values in lines, [B, S, K D]."""
    if inputs.in_lines:
        return inputs
    batch, _, slots, _ = inputs.keys.shape
    keys, values = (x.swapaxes(1, 2).reshape(batch, slots, -1) for x in inputs[1:3])
    return inputs._replace(keys=keys, values=values)


def by_key_head(inputs: Inputs) -> Float[Array, "B K GW D"]:
    """Groups the queries by key head; query w of head g in its group becomes row `g W + w`."""
    batch, window, kv_heads, group, _, dim = inputs.sizes
    queries = inputs.queries.reshape(batch, window, kv_heads, group, dim)
    return queries.transpose(0, 2, 3, 1, 4).reshape(batch, kv_heads, group * window, dim)


def by_query(attended: Float[Array, "B K GW D"], inputs: Inputs) -> Float[Array, "B W H D"]:
    """Inverts the layout of `by_key_head`, and casts to the dtype of the queries."""
    batch, window, heads, dim = inputs.queries.shape
    attended = attended.reshape(batch, heads, window, dim)
    return attended.swapaxes(1, 2).astype(inputs.queries.dtype)


def limits(inputs: Inputs) -> Int[Array, "B 3 GW"]:
    """First position, last position and cell flags, for each row of `by_key_head`."""
    sight = inputs.sight
    each = jnp.stack([sight.first, sight.last, flags(sight)], axis=1)
    return jnp.tile(each, (1, 1, inputs.sizes.group))


def precision(dtype) -> jax.lax.Precision | None:
    """Precision of matmuls; accelerators by default round float32 inputs to bfloat16 or TF32."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None
