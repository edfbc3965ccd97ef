"""BLT-DV with a table of the byte before: a block filled in one pass, from left to right."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from bytelax import vocab
from bytelax.decode.drafters.block_diffusion import BlockDiffusion
from bytelax.decode.drafters.draft_sampling import draft_of, draw, scanned
from bytelax.decode.unmasking import ONE_STEP


@dataclasses.dataclass(frozen=True)
class BlockInOrder:
    """Drafts a masked block in one pass of the decoder, and samples it from left to right.

    The pass predicts the bytes of a block apart from one another. A trained table then adds to the
    logits of each byte but the first a row that depends on the byte sampled before it, as the
    Markov head of DSpark does (arXiv 2607.05147). The first byte needs none: the decoder has read
    the byte before the block. Position j is sampled from a distribution that depends on the bytes
    before it only, and that distribution is reported.

    Attributes:
      draft_length: K, number of bytes in a block.
      latent: as in `BlockDiffusion`.
    """

    draft_length: int
    latent: Literal["reuse", "refresh"] = "reuse"

    @property
    def _blocks(self) -> BlockDiffusion:
        return BlockDiffusion(self.draft_length, ONE_STEP, latent=self.latent)

    def fit(self, target):
        target = self._blocks.fit(target)
        heads = target.module.config.heads
        if not (heads and heads.block_table):
            raise ValueError("the model has no block table; `bytelax train heads` trains one")
        return target

    def init(self, inputs):
        return self._blocks.init(inputs)

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        _, decoder, ahead, made = self._blocks.first_pass(inputs, draft_state)
        uniforms = inputs.uniforms(self.draft_length)

        def step(before, place):
            index, logits, uniform = place
            row = jnp.where(index > 0, model.heads.block_table(before), 0)
            logits = logits + jnp.pad(row, ((0, 0), (vocab.OFFSET, 0)))  # none for special ids
            drawn = draw(logits[:, None], inputs.sampling, uniform[:, None])
            return drawn.ids[:, 0], drawn

        places = jnp.arange(self.draft_length), ahead.logits.swapaxes(0, 1), uniforms.T
        _, drawn = jax.lax.scan(step, text.pending[:, 0], places)
        draft = draft_of(
            scanned(drawn),
            step=jnp.ones(self.draft_length, jnp.int32),
            passes=made,
            state=dataclasses.replace(inputs.state, decoder=decoder),
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self._blocks.commit(inputs, draft_state, trial, count)
