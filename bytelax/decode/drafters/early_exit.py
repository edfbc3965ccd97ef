"""Early exit: the first layers draft, all of them verify."""

import dataclasses

from bytelax.decode.drafters import own_layers
from bytelax.decode.drafters.base import expect
from bytelax.decode.drafters.drawn import draw, in_a_row
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models.heads import HeadsConfig, only_bytes
from bytelax.models.transformer import Part

_HINT = "; `bytelax train heads` trains one"


@dataclasses.dataclass(frozen=True)
class EarlyExit:
    """Drafts byte by byte with the first `layer` blocks.

    LayerSkip (Elhoushi et al., arXiv 2404.16710, section 4.3), and with `two_byte` the composed
    recipe: behind each byte of the exit, one from a two-byte-ahead head on the same state. Then a
    pass drafts two bytes.

    Attributes:
      draft_length: K, bytes drafted; even with `two_byte`.
      layer: how many blocks draft.
      head: read the state by the exit head of that depth, not by the model's own output.
      two_byte: draft a second byte from each state, by the two-byte-ahead head of that depth.
      hand_over: verification starts behind block `layer`, with the states that drafting computed,
        where the window is K + 1. Those may differ in their last bits from what a pass of K + 1
        bytes would make of them.
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
        model, law = inputs.model, inputs.sampling

        def drawn(hidden, uniforms):
            logits = model.heads.exit(self.layer, hidden) if self.head else model.logits(hidden)
            first = draw(logits, law, uniforms[:, :1])
            if not self.two_byte:
                return first
            after = model.heads.two_byte(self.layer, hidden, model.embed(first.ids))
            second = draw(only_bytes(model.logits(after)), law, uniforms[:, 1:])
            return in_a_row(first, second)

        draft = own_layers.propose(
            inputs,
            drawn,
            part=Part(last=self.layer),
            length=self.draft_length,
            stride=1 + self.two_byte,
            hand_over=self.hand_over and inputs.target.window == self.draft_length + 1,
        )
        return draft, draft_state

    def commit(self, inputs, draft_state, trial, count):
        return draft_state
