"""What a drafter proposes."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.target import State
from bytelax.pytree import pytree


class DraftPasses(NamedTuple):
    """Forward passes made to propose, one number a row."""

    decoder: Int[Array, " B"]  # of the target's local decoder, or of a part of a byte transformer
    encoder: Int[Array, " B"]
    global_: Int[Array, " B"]
    patcher: Int[Array, " B"]
    draft_model: Int[Array, " B"]  # of a network that is not the target's


def no_passes(batch: int) -> DraftPasses:
    return DraftPasses(*(jnp.zeros(batch, jnp.int32) for _ in DraftPasses._fields))


@pytree
class Draft:
    """Proposed bytes. Only `ids` and `length` are needed of a drafter that draws nothing.

    Attributes:
      ids: the proposal; what stands at or beyond `length` is never read.
      length: number of bytes proposed in each row, 0..K. Whether place j is part of the draft may
        depend on the text and on the ids before j, never on id j: a draft cut because of the id it
        loses is no longer a draw from `log_probs`, and the output no longer the target's.
      log_probs: the distribution each id was really drawn from, after temperature and truncation.
        None: nothing was drawn, and each distribution is one-hot.
      step: which of the drafter's passes of this round chose the id, from 1; 0 (None) where none
        did.
      passes: forward passes that proposing took; None: none.
      confidence: the drafter's own probability of each id, before temperature and truncation. None:
        that of `log_probs`.
      parents: of a tree, the window place of each id's parent, in 0..j for the id at place j; the
        pending byte has place 0. None: each id follows the one before it.
      computed: what the drafter has computed of the window that the target need not compute again.
        It is the keyword `computed` of `extend`. None: nothing.
      state: the target's state in the buffers that the drafter has run ahead in, so that they are
        not copied. It means what it meant before: whatever the drafter wrote lies in the window.
        None: the state as it was.
    """

    ids: Int[Array, "B K"]
    length: Int[Array, " B"]
    log_probs: Float[Array, "B K V"] | None = None
    step: Int[Array, "B K"] | None = None
    passes: DraftPasses | None = None
    confidence: Float[Array, "B K"] | None = None
    parents: Int[Array, "B K"] | None = None
    computed: Any = None
    state: State = None

    def written_out(self, vocab_size: int | None = None) -> "Draft":
        """The same draft, with arrays for what None stands for, trees and computations aside.

        Args:
          vocab_size: number of the target's ids; None leaves `log_probs` as it is.
        """
        batch, places = self.ids.shape
        log_probs, confidence = self.log_probs, self.confidence
        if confidence is None and log_probs is None:
            confidence = jnp.ones((batch, places), jnp.float32)
        elif confidence is None:
            here = jnp.take_along_axis(log_probs, self.ids[..., None], axis=-1)
            confidence = jnp.exp(here[..., 0])
        if log_probs is None and vocab_size is not None:
            log_probs = sampling.one_hot(self.ids, vocab_size)
        return dataclasses.replace(
            self,
            log_probs=log_probs,
            step=jnp.zeros((batch, places), jnp.int32) if self.step is None else self.step,
            passes=no_passes(batch) if self.passes is None else self.passes,
            confidence=confidence,
        )

    def widened(self, places: int) -> "Draft":
        """The draft in `places` places, of which those behind its own are never part of it."""
        further = places - self.ids.shape[1]
        if not further:
            return self

        def pad(x):
            return x if x is None else jnp.pad(x, ((0, 0), (0, further), *((0, 0),) * (x.ndim - 2)))

        return dataclasses.replace(
            self,
            ids=pad(self.ids),
            log_probs=pad(self.log_probs),
            step=pad(self.step),
            confidence=pad(self.confidence),
            parents=pad(self.parents),
            computed=None,
        )

    def alone(self) -> "Draft":
        """The draft without what was computed for its own window."""
        return dataclasses.replace(self, computed=None, state=None)


def certain(ids: Int[Array, "B K"], *, length: Int[Array, " B"] | None = None) -> Draft:
    """A deterministic draft that took no forward pass.

    Args:
      ids: what is proposed.
      length: how much of it in each row; None is all.
    """
    batch, places = ids.shape
    return Draft(ids, jnp.full(batch, places) if length is None else length)
