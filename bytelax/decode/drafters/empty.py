"""The empty draft, which makes a method plain autoregressive decoding."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode.draft import certain


@dataclasses.dataclass(frozen=True)
class Empty:
    """Proposes nothing, in a draft of `draft_length` padded positions.

    With 0 positions this is plain decoding. With K positions it is plain decoding in windows of K +
    1 bytes: the bitwise reference for a lossless drafter of K bytes.
    """

    draft_length: int = 0

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        nothing = jnp.zeros_like(inputs.text.length)
        ids = jnp.zeros((len(nothing), self.draft_length), jnp.int32)
        return certain(ids, length=nothing), draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
