"""The empty draft: plain autoregressive decoding."""

import dataclasses

import jax.numpy as jnp

from bytelax import vocab
from bytelax.decode.drafters.base import certain


@dataclasses.dataclass(frozen=True)
class Empty:
    """Proposes nothing, in `width` padded places.

    With `width` 0 this is plain decoding; with `width` K it is its padded twin, bitwise the
    reference for a drafter of K bytes.
    """

    width: int = 0
    vocab_size: int = vocab.SIZE

    def init(self, params, text, state):
        return ()

    def propose(self, params, draft_state, text, state, key):
        nothing = jnp.zeros_like(text.length)
        ids = jnp.zeros((len(nothing), self.width), jnp.int32)
        return certain(ids, length=nothing, vocab_size=self.vocab_size), draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state
