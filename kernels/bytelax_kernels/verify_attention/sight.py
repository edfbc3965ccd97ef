"""Which cached positions each query of a window sees, and where they lie."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

CELLS = 32  # of a tree that the kernels take: one bit each


class Sight(NamedTuple):
    """Query w sees the positions `first..last`, and the cells of the window flagged in its row.

    Cell c of the window is the position `newest - W + 1 + c`. Where both say so, it counts once.
    """

    first: Int[Array, "B W"]
    last: Int[Array, "B W"]
    newest: Int[Array, " B"]
    ancestors: Bool[Array, "B W W"] | None = None

    @property
    def start(self) -> Int[Array, " B"]:
        """Position of cell 0 of the window."""
        return self.newest - self.first.shape[1] + 1


def positions(newest: Int[Array, " B"], slots: int) -> Int[Array, "B {slots}"]:
    """The position that each slot holds; negative where none was written yet."""
    return newest[:, None] - (newest[:, None] - jnp.arange(slots)) % slots


def visible(sight: Sight, position: Int[Array, "#B S"]) -> Bool[Array, "B W S"]:
    """Whether each query sees each of these positions; nobody sees a negative one."""
    position = position[:, None]
    seen = (position >= sight.first[..., None]) & (position <= sight.last[..., None])
    if sight.ancestors is None:
        return seen
    window = sight.first.shape[1]
    cell = position - sight.start[:, None, None]
    flagged = jnp.take_along_axis(sight.ancestors, jnp.clip(cell, 0, window - 1), axis=2)
    return seen | (flagged & (cell >= 0) & (cell < window) & (position >= 0))


def reach(sight: Sight) -> tuple[Int[Array, " B"], Int[Array, " B"]]:
    """The lowest and the highest position that some query of the row sees, or (beyond it, -1)."""
    lowest = jnp.where(sight.first <= sight.last, sight.first, jnp.iinfo(jnp.int32).max).min(1)
    highest = jnp.where(sight.first <= sight.last, sight.last, -1).max(1)
    if sight.ancestors is None:
        return lowest, highest
    cells = sight.ancestors.any(1)
    cell = jnp.where(cells, sight.start[:, None] + jnp.arange(cells.shape[1]), -1)
    lowest = jnp.minimum(lowest, jnp.where(cells, cell, jnp.iinfo(jnp.int32).max).min(1))
    return lowest, jnp.maximum(highest, cell.max(1))


def in_reach(sight: Sight, slots: int) -> Bool[Array, "B {slots}"]:
    """Whether a slot lies between the lowest and the highest position that its row sees."""
    lowest, highest = reach(sight)
    position = positions(sight.newest, slots)
    return (position >= lowest[:, None]) & (position <= highest[:, None])


def sees(slot, newest, limits, *, slots: int, window: int):
    """`visible` in the arithmetic of the kernels: no gather, no remainder of arrays.

    Args:
      slot: i32, which slots.
      newest: the row's, a number.
      limits: first, last and cells of queries, as `inputs.limits` has them; they broadcast with
        `slot`.
      slots: of the cache.
      window: W.
    """
    first, last, cells = limits
    lap = newest - jax.lax.rem(newest, slots)  # the position in slot 0, of those written last
    position = slot + jnp.where(slot <= newest - lap, lap, lap - slots)
    seen = (position >= first) & (position <= last)
    cell = position - (newest - window + 1)
    flag = (cells >> jnp.clip(cell, 0, CELLS - 1)) & 1
    return seen | ((flag == 1) & (cell >= 0) & (cell < window) & (position >= 0))


def flags(sight: Sight) -> Int[Array, "B W"]:
    """The cells that each query sees, as bits."""
    if sight.ancestors is None:
        return jnp.zeros_like(sight.first)
    bit = jnp.left_shift(jnp.uint32(1), jnp.arange(sight.ancestors.shape[2], dtype=jnp.uint32))
    bits = jnp.where(sight.ancestors, bit, 0).sum(2, dtype=jnp.uint32)
    return jax.lax.bitcast_convert_type(bits, jnp.int32)
