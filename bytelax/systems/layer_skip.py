"""Layer skipping: a byte transformer drafts without some of its blocks.

Source: Draft & Verify, Zhang et al., arXiv 2309.08168, section 3.1.
"""

import dataclasses

from bytelax.decode.draft import draw
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.models.transformer import LayerRange
from bytelax.options import LayerSkip
from bytelax.systems.draft_ahead import draft_ahead
from bytelax.systems.fitting import Model, checked_length
from bytelax.targets.byte_lm import ByteLMTarget


@dataclasses.dataclass(frozen=True)
class LayerSkipDrafter(Drafter):
    """Drafts byte by byte with the attention and the SwiGLU of chosen blocks skipped.

    It needs no training.

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

    def propose(self, inputs, draft_state):
        model = inputs.model
        draft = draft_ahead(
            inputs,
            lambda hidden, uniforms: draw(model.logits(hidden), inputs.sampling, uniforms),
            layers=LayerRange(no_attention=self.no_attention, no_mlp=self.no_mlp),
            length=self.draft_length,
        )
        return draft, draft_state


def build(options: LayerSkip, model: Model) -> Method:
    """Returns the method that its options describe."""
    attention, mlp = tuple(options.skip_attention), tuple(options.skip_mlp)
    if not attention and not mlp:
        attention = mlp = tuple(range(1, model.config.depth - 1, 2))
    length = checked_length(options.draft_length, model)
    return Method(model.target(), LayerSkipDrafter(length, attention, mlp))
