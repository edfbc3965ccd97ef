"""Provenance of each output byte: drafted, corrected, or the target's own."""

import enum

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft
from bytelax.pytree import pytree


class Origin(enum.IntEnum):
    """Where a byte of a text comes from."""

    PROMPT = 0  # part of the prompt
    PLAIN = 1  # the target's own, in a round without a draft
    DRAFTED = 2  # drafted and accepted
    CORRECTED = 3  # the target's own, in place of a rejected byte
    FREE = 4  # the target's own, after a fully accepted draft (the bonus byte)


@pytree
class Origins:
    """Provenance of every byte of one text or of a batch of texts.

    Attributes:
      kind: an `Origin` code for each byte.
      step: number of the drafter's pass that chose a drafted byte, counted from 1, as in
        `Draft.step`; in block diffusion the pass that unmasked it. 0 for all other bytes.
    """

    kind: Int[Array | np.ndarray, "*B L"]
    step: Int[Array | np.ndarray, "*B L"]

    def __getitem__(self, index) -> "Origins":
        return Origins(self.kind[index], self.step[index])

    @property
    def names(self) -> list[str]:
        """The kinds of a single text as lower-case names."""
        return [Origin(int(kind)).name.lower() for kind in self.kind]


def no_origins(batch: int, length: int) -> Origins:
    """Returns the origins of a batch of texts that consist of their prompts only."""
    return Origins(jnp.zeros((batch, length), jnp.int8), jnp.zeros((batch, length), jnp.int16))


def of_round(draft: Draft, emitted: Emitted) -> Origins:
    """Returns the origins [B, W] of the ids of a round; undefined from `emitted.count` on."""
    is_drafted = jnp.arange(emitted.ids.shape[1]) < emitted.drafted[:, None]
    whole = emitted.drafted == draft.length
    own = jnp.where(whole, Origin.FREE, Origin.CORRECTED)
    own = jnp.where(draft.length == 0, Origin.PLAIN, own)
    assert draft.step is not None  # the draft is written out
    step = jnp.pad(draft.step, ((0, 0), (0, 1)))
    return Origins(
        jnp.where(is_drafted, Origin.DRAFTED, own[:, None]).astype(jnp.int8),
        jnp.where(is_drafted, step, 0).astype(jnp.int16),
    )
