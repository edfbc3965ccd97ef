"""Provenance of each output byte: drafted, corrected, or the target's own."""

import enum

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bytelax.decode.acceptance import Emitted
from bytelax.decode.draft import Draft
from bytelax.pytree import pytree


class Origin(enum.IntEnum):
    """How a byte came about."""

    PROMPT = 0  # it was given
    PLAIN = 1  # the target's own; nothing was drafted
    DRAFTED = 2  # drafted, and accepted
    CORRECTED = 3  # the target's own, in place of a drafted byte that was refused
    FREE = 4  # the target's own, behind a draft that was accepted whole


@pytree
class Origins:
    """Of the bytes of a text, or of many.

    Attributes:
      kind: a code of `Origin` for each.
      step: which pass of its drafter chose a drafted byte, from 1, as in `Draft.step`: for a block
        of masked bytes the pass that filled it in. 0 for all others.
    """

    kind: Int[Array | np.ndarray, "*B L"]
    step: Int[Array | np.ndarray, "*B L"]

    def __getitem__(self, index) -> "Origins":
        return Origins(self.kind[index], self.step[index])

    @property
    def names(self) -> list[str]:
        """The kinds in lower case; of a single text."""
        return [Origin(kind).name.lower() for kind in self.kind]


def no_origins(batch: int, length: int) -> Origins:
    """The origins of texts that are all prompt."""
    return Origins(jnp.zeros((batch, length), jnp.int8), jnp.zeros((batch, length), jnp.int16))


def of_round(draft: Draft, emitted: Emitted) -> Origins:
    """Origins [B, W] of the ids a round emits; unspecified at and beyond `emitted.count`."""
    is_drafted = jnp.arange(emitted.ids.shape[1]) < emitted.drafted[:, None]
    whole = emitted.drafted == draft.length
    own = jnp.where(whole, Origin.FREE, Origin.CORRECTED)
    own = jnp.where(draft.length == 0, Origin.PLAIN, own)
    step = jnp.pad(draft.step, ((0, 0), (0, 1)))
    return Origins(
        jnp.where(is_drafted, Origin.DRAFTED, own[:, None]).astype(jnp.int8),
        jnp.where(is_drafted, step, 0).astype(jnp.int16),
    )
