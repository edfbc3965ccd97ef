"""Rings: arrays [B, N, ...] addressed by position. The entry of position p is in slot `p % N`.

Rejected entries stay until the next window overwrites them, so N is at least the number of
positions that must stay readable plus the window.
"""

import jax.numpy as jnp
from bytelax_kernels.append_attention import slots_of
from bytelax_kernels.verify_attention.sight import positions as positions_of
from jaxtyping import Array, Int


def put(ring: Array, values: Array, positions: Int[Array, "B W"]) -> Array:
    """Writes the values [B, W, ...] of these positions; position -1 writes nothing."""
    slot = slots_of(positions, ring.shape[1])  # out of bounds is dropped
    row = jnp.arange(ring.shape[0])[:, None]
    return ring.at[row, slot].set(values.astype(ring.dtype), mode="drop")


def at(ring: Array, positions: Int[Array, "B M"]) -> Array:
    """Reads the entries [B, M, ...] of these positions; those no longer in the ring are garbage."""
    slot = positions % ring.shape[1]
    return jnp.take_along_axis(ring, slot.reshape(*slot.shape, *(1,) * (ring.ndim - 2)), axis=1)


def latest(newest: Int[Array, " B"], slots: int) -> Int[Array, "B {slots}"]:
    """The latest positions, in the order of their slots in a ring of that size; 0 if there is none.

    So `at(ring, latest(newest, slots))` is the ring in another size.
    """
    return jnp.maximum(positions_of(newest, slots), 0)
