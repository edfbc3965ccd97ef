"""A head that knows the next byte predicts the one after it."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode import sampling
from bytelax.decode.drafters.base import no_passes
from bytelax.decode.drafters.drawn import draft_of, draw
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import only_bytes


@dataclasses.dataclass(frozen=True)
class TwoByte:
    """Drafts one byte, from a state of the byte before the pending one and the pending byte.

    Attributes:
      target: the target that the loop extends; it keeps the state at `depth`.
      depth: blocks behind which the state is read: all of them, or those of the middle.
    """

    target: ByteLMTarget
    depth: int

    width = 1

    def __post_init__(self):
        heads = self.target.module.config.heads
        if heads is None or self.depth not in heads.two_byte:
            raise ValueError(
                f"the model has no two-byte head behind layer {self.depth}; `bytelax train heads` "
                "trains one"
            )

    def init(self, params, text, state):
        return ()

    def propose(self, params, draft_state, text, state, key):
        law = params["law"]
        model = self.target.module.bind({"params": params["target"]})
        hidden = state.hidden[self.target.keep.index(self.depth)][:, None]
        after = model.heads.two_byte(self.depth, hidden, model.embed(text.pending))
        drawn = draw(only_bytes(model.logits(after)), law, sampling.row_uniforms(key, 1))
        step, passes = jnp.ones(1, jnp.int32), no_passes(len(text.length))
        return draft_of(drawn, law, step=step, passes=passes), draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state
