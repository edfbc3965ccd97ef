"""The empty draft: plain autoregressive decoding."""

import dataclasses

import jax.numpy as jnp

from bytelax import vocab
from bytelax.decode.drafters.base import Draft, no_passes


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
        batch = text.ids.shape[0]
        draft = Draft(
            ids=jnp.zeros((batch, self.width), jnp.int32),
            length=jnp.zeros(batch, jnp.int32),
            log_probs=jnp.zeros((batch, self.width, self.vocab_size), jnp.float32),
            deterministic=jnp.ones(batch, bool),
            step=jnp.zeros((batch, self.width), jnp.int32),
            passes=no_passes(batch),
        )
        return draft, draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state
