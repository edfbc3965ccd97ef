"""Hidden states that a target keeps for drafters, in rings addressed by position like its caches.

Position p is in slot `p % N`. The states of a rejected window stay until the next one overwrites
them, so N is at least the number of positions that must stay readable plus the window.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

Rings = tuple[Float[Array, "B N _"], ...]
Target = TypeVar("Target", bound="Keeping")


class Keeping:
    """Base of targets, frozen dataclasses, that keep states: see `KeepsStates`.

    Attributes:
      keep: depths whose states are kept, in ascending order.
      reach: number of the latest bytes whose states are kept; None keeps those of all.
    """

    keep: tuple[int, ...]
    reach: int | None

    def keeping(self: Target, *depths: int, reach: int | None = 1) -> Target:
        """Returns the target that also keeps the states at these depths, of `reach` bytes."""
        return dataclasses.replace(  # type: ignore[type-var]  # every target is a dataclass
            self,
            keep=tuple(sorted({*self.keep, *depths})),
            reach=wider(self.reach, reach),
        )


def empty(widths: Sequence[int], *, batch: int, slots: int, dtype) -> Rings:
    """Creates one ring of zeros for each width."""
    return tuple(jnp.zeros((batch, slots, width), dtype) for width in widths)


def write(
    rings: Rings, states: Sequence[Float[Array, "B W _"]], positions: Int[Array, "B W"]
) -> Rings:
    """Writes the states of a window to their slots; position -1 writes nothing."""
    if not rings:
        return rings
    slots = rings[0].shape[1]
    row = jnp.arange(rings[0].shape[0])[:, None]
    slot = jnp.where(positions < 0, slots, positions % slots)  # out of bounds is dropped
    return tuple(
        ring.at[row, slot].set(new.astype(ring.dtype), mode="drop")
        for ring, new in zip(rings, states, strict=True)
    )


def read(ring: Float[Array, "B N D"], positions: Int[Array, "B M"]) -> Float[Array, "B M D"]:
    """Reads the states at `positions`; states never written, or overwritten, are garbage."""
    return jnp.take_along_axis(ring, (positions % ring.shape[1])[..., None], axis=1)


def resize(rings: Rings, newest: Int[Array, " B"], slots: int) -> tuple[Float[Array, "B M _"], ...]:
    """Copies the latest `slots` positions to rings of that size."""
    positions = newest[:, None] - (newest[:, None] - jnp.arange(slots)) % slots
    return tuple(read(ring, jnp.maximum(positions, 0)) for ring in rings)


def wider(one: int | None, other: int | None) -> int | None:
    """Returns the larger of two reaches; None is the whole text."""
    return None if one is None or other is None else max(one, other)
