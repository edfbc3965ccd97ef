"""Which cached positions each query of a window attends to, and which slots hold them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

CELLS = 32  # largest number of cells of a tree in the kernels, which use one bit for each


class Sight(NamedTuple):
    """What queries attend to: positions `first..last`, and with `ancestors` cells of the window.

    Cell c of the window is at position `newest - W + 1 + c`. A position that is in both counts
    once.
    """

    first: Int[Array, "B W"]
    last: Int[Array, "B W"]
    newest: Int[Array, " B"]
    ancestors: Bool[Array, "B W W"] | None = None

    @property
    def start(self) -> Int[Array, " B"]:
        """Position of the first cell of the window."""
        return self.newest - self.first.shape[1] + 1


def positions(newest: Int[Array, " B"], slots: int) -> Int[Array, "B {slots}"]:
    """The position that each slot holds; negative if the slot was never written."""
    return newest[:, None] - (newest[:, None] - jnp.arange(slots)) % slots


def visible(sight: Sight, position: Int[Array, "#B S"]) -> Bool[Array, "B W S"]:
    """Whether each query attends to each of these positions; never to negative ones."""
    position = position[:, None]
    seen = (position >= sight.first[..., None]) & (position <= sight.last[..., None])
    if sight.ancestors is None:
        return seen
    window = sight.first.shape[1]
    cell = position - sight.start[:, None, None]
    flagged = jnp.take_along_axis(sight.ancestors, jnp.clip(cell, 0, window - 1), axis=2)
    return seen | (flagged & (cell >= 0) & (cell < window) & (position >= 0))


def reach(sight: Sight) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """The lowest and the highest position to which some query of a row attends.

    If no query attends to anything, they are (the largest int32, -1).
    """
    lowest = jnp.where(sight.first <= sight.last, sight.first, jnp.iinfo(jnp.int32).max).min(1)
    highest = jnp.where(sight.first <= sight.last, sight.last, -1).max(1)
    if sight.ancestors is None:
        return lowest, highest
    cells = sight.ancestors.any(1)
    cell = jnp.where(cells, sight.start[:, None] + jnp.arange(cells.shape[1]), -1)
    lowest = jnp.minimum(lowest, jnp.where(cells, cell, jnp.iinfo(jnp.int32).max).min(1))
    return lowest, jnp.maximum(highest, cell.max(1))


def in_reach(sight: Sight, slots: int) -> Bool[Array, "B {slots}"]:
    """Whether the position in each slot is in the range that `reach` returns for its row."""
    lowest, highest = reach(sight)
    position = positions(sight.newest, slots)
    return (position >= lowest[:, None]) & (position <= highest[:, None])


def sees(slot, newest, limits, *, slots: int, window: int):
    """`visible` for use inside kernels: without gathers and without remainders of arrays.

    Args:
      slot: i32 indices of slots.
      newest: latest position written in the row, a scalar.
      limits: first position, last position and cell flags of the queries, as in `inputs.limits`;
        they broadcast with `slot`.
      slots: number of slots of the cache.
      window: number of queries in the window, W.
    """
    first, last, cells = limits
    lap = newest - jax.lax.rem(newest, slots)  # the position that slot 0 holds
    position = slot + jnp.where(slot <= newest - lap, lap, lap - slots)
    seen = (position >= first) & (position <= last)
    cell = position - (newest - window + 1)
    flag = (cells >> jnp.clip(cell, 0, CELLS - 1)) & 1
    return seen | ((flag == 1) & (cell >= 0) & (cell < window) & (position >= 0))


def flags(sight: Sight) -> Int[Array, "B W"]:
    """The cells that each query attends to, as the bits of an int32."""
    if sight.ancestors is None:
        return jnp.zeros_like(sight.first)
    bit = jnp.left_shift(jnp.uint32(1), jnp.arange(sight.ancestors.shape[2], dtype=jnp.uint32))
    bits = jnp.where(sight.ancestors, bit, 0).sum(2, dtype=jnp.uint32)
    return jax.lax.bitcast_convert_type(bits, jnp.int32)
