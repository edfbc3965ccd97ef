"""Layer skipping: the model drafts without some of its blocks, and all of them verify."""

import dataclasses

from bytelax.decode.drafters import self_draft
from bytelax.decode.drafters.base import expect
from bytelax.decode.drafters.draft_sampling import draw
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.transformer import LayerRange


@dataclasses.dataclass(frozen=True)
class LayerSkip:
    """Drafts byte by byte with the attention and the SwiGLU of chosen blocks skipped.

    Draft & Verify (Zhang et al., arXiv 2309.08168, section 3.1). Needs no training.

    Attributes:
      draft_length: K, number of bytes drafted.
      no_attention: blocks whose attention is skipped.
      no_mlp: blocks whose SwiGLU is skipped.
    """

    draft_length: int
    no_attention: tuple[int, ...]
    no_mlp: tuple[int, ...]

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        layers = target.module.config.trunk.layers
        for skipped in (self.no_attention, self.no_mlp):
            if not set(skipped) <= set(range(layers)):
                raise ValueError(f"blocks are 0..{layers - 1}; cannot skip {sorted(skipped)}")
        return target

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        model = inputs.model
        draft = self_draft.propose(
            inputs,
            lambda hidden, uniforms: draw(model.logits(hidden), inputs.sampling, uniforms),
            layers=LayerRange(no_attention=self.no_attention, no_mlp=self.no_mlp),
            length=self.draft_length,
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
