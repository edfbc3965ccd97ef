"""A two-byte-ahead head: it knows the next byte and predicts the one after it."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode.drafters.base import expect, kept_state
from bytelax.decode.drafters.draft_sampling import draft_of, draw
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import only_bytes


@dataclasses.dataclass(frozen=True)
class TwoByte:
    """Drafts one byte with a two-byte-ahead head.

    The head reads a hidden state of the byte before the pending one, and the pending byte.

    Attributes:
      depth: number of blocks after which the hidden state is read: all of them, or fewer.
    """

    depth: int

    draft_length = 1

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        heads = target.module.config.heads
        if heads is None or self.depth not in heads.two_byte:
            raise ValueError(
                f"the model has no two-byte head behind layer {self.depth}; `bytelax train heads` "
                "trains one"
            )
        return target.keeping(self.depth)

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        model = inputs.model
        hidden = kept_state(inputs, self.depth, inputs.state.length[:, None] - 1)
        after = model.heads.two_byte(self.depth, hidden, model.embed(inputs.text.pending))
        drawn = draw(only_bytes(model.logits(after)), inputs.sampling, inputs.uniforms(1))
        return draft_of(drawn, step=jnp.ones(1, jnp.int32)), draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
