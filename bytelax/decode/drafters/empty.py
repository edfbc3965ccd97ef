"""The empty draft: plain autoregressive decoding."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode.draft import certain


@dataclasses.dataclass(frozen=True)
class Empty:
    """Proposes nothing, in `draft_length` padded places.

    With 0 of them this is plain decoding; with K of them it is its padded twin, bitwise the
    reference for a drafter of K bytes.
    """

    draft_length: int = 0

    text_only = True

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        nothing = jnp.zeros_like(inputs.text.length)
        ids = jnp.zeros((len(nothing), self.draft_length), jnp.int32)
        return certain(ids, length=nothing), draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
