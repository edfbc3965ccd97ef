"""The model drafts with some of its blocks skipped, all of them verify."""

import dataclasses

from bytelax.decode import sampling
from bytelax.decode.drafters import own_layers
from bytelax.decode.drafters.drawn import draw
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.transformer import Part


@dataclasses.dataclass(frozen=True)
class LayerSkip:
    """Drafts byte by byte without the attention and the SwiGLU of chosen blocks.

    Draft & Verify (Zhang et al., arXiv 2309.08168, section 3.1); nothing is trained.

    Attributes:
      target: the target that the loop extends.
      width: K, bytes drafted.
      no_attention: blocks whose attention is skipped.
      no_mlp: blocks whose SwiGLU is skipped.
    """

    target: ByteLMTarget
    width: int
    no_attention: tuple[int, ...]
    no_mlp: tuple[int, ...]

    def __post_init__(self):
        layers = self.target.module.config.trunk.layers
        for skipped in (self.no_attention, self.no_mlp):
            if not set(skipped) <= set(range(layers)):
                raise ValueError(f"blocks are 0..{layers - 1}; cannot skip {sorted(skipped)}")

    def init(self, params, text, state):
        return ()

    def propose(self, params, draft_state, text, state, key):
        model = self.target.module.bind({"params": params["target"]})
        law = params["law"]
        draft = own_layers.propose(
            model,
            self.target,
            state,
            text.pending,
            lambda hidden, uniforms: draw(model.logits(hidden), law, uniforms),
            law,
            part=Part(no_attention=self.no_attention, no_mlp=self.no_mlp),
            uniforms=sampling.row_uniforms(key, self.width),
        )
        return draft, draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state
