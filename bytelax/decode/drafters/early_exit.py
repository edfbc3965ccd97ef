"""Early exit: the first layers draft, and all of them verify."""

import dataclasses

from bytelax.decode.drafters import self_draft
from bytelax.decode.drafters.base import expect
from bytelax.decode.drafters.draft_sampling import draw, in_a_row
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import HeadsConfig, only_bytes
from bytelax.models.transformer import LayerRange

_HINT = "; `bytelax train heads` trains one"


@dataclasses.dataclass(frozen=True)
class EarlyExit:
    """Drafts byte by byte with the first `layer` blocks of the model (early exit).

    LayerSkip (Elhoushi et al., arXiv 2404.16710, section 4.3). With `two_byte`, a two-byte-ahead
    head on the same hidden state drafts one more byte, so that every pass drafts two.

    Attributes:
      draft_length: K, number of bytes drafted; must be even with `two_byte`.
      layer: number of blocks that draft.
      head: whether the exit head of that depth reads the hidden state, in place of the model's own
        output layer.
      two_byte: whether the two-byte-ahead head of that depth drafts a second byte from each state.
      hand_over: whether verification continues after block `layer`, from the states that drafting
        computed; this needs a window of K + 1. Their last bits may differ from those of a pass over
        all K + 1 bytes.
    """

    draft_length: int
    layer: int
    head: bool = False
    two_byte: bool = False
    hand_over: bool = True

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        layers = target.module.config.trunk.layers
        if not 1 <= self.layer < layers:
            raise ValueError(
                f"the model has {layers} layers: an early exit lies behind one of the first "
                f"{layers - 1}, got {self.layer}"
            )
        heads = target.module.config.heads or HeadsConfig()
        if self.head and self.layer not in heads.exits:
            raise ValueError(f"the model has no exit head behind layer {self.layer}{_HINT}")
        if self.two_byte and self.layer not in heads.two_byte:
            raise ValueError(f"the model has no two-byte head behind layer {self.layer}{_HINT}")
        if self.two_byte and self.draft_length % 2:
            raise ValueError(
                f"a two-byte head drafts pairs: an even length, got {self.draft_length}"
            )
        return target

    def init(self, inputs):
        return ()

    def propose(self, inputs, draft_state):
        model = inputs.model

        def drawn(hidden, uniforms):
            logits = model.heads.exit(self.layer, hidden) if self.head else model.logits(hidden)
            first = draw(logits, inputs.sampling, uniforms[:, :1])
            if not self.two_byte:
                return first
            after = model.heads.two_byte(self.layer, hidden, model.embed(first.ids))
            second = draw(only_bytes(model.logits(after)), inputs.sampling, uniforms[:, 1:])
            return in_a_row(first, second)

        draft = self_draft.propose(
            inputs,
            drawn,
            layers=LayerRange(last=self.layer),
            length=self.draft_length,
            stride=1 + self.two_byte,
            hand_over=self.hand_over and inputs.target.window == self.draft_length + 1,
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
