"""Speculative decoding with a separate, smaller model that drafts.

Source: speculative sampling, Leviathan et al., arXiv 2211.17192.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode.draft import draft_of, draw, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafter import Drafter
from bytelax.decode.method import Method
from bytelax.decode.target import Rewindable, State, Text
from bytelax.models.pytree import pytree
from bytelax.options import DraftModel
from bytelax.systems.fitting import Model, checked_length


@pytree
class DraftModelState:
    """The draft model's state after the first `seen` bytes of the text, without drafted bytes."""

    state: State
    seen: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftModelDrafter(Drafter):
    """Drafts `draft_length` bytes one by one with a smaller model, under the request's sampling.

    The draft model's caches hold the text as it was at the last call of `propose`, which first
    processes the bytes emitted since then, whoever drafted them, in windows of K + 1 bytes: one
    window if every round proposes. It then runs ahead of the text one byte per pass, and rewinds.
    So `commit` has nothing to do, and a draft of K bytes takes K passes.

    `DraftInput.params` are the parameters of the draft model.

    Attributes:
      target: the draft model.
      draft_length: K, number of bytes drafted.
    """

    target: Rewindable
    draft_length: int

    def __post_init__(self):
        if self.draft_length < 1:
            raise ValueError(f"a draft model must draft at least 1 byte, got {self.draft_length}")
        object.__setattr__(self, "target", self.target.in_windows(self.draft_length + 1))

    def fit(self, target):
        sizes = [one.vocab_size for one in (self.target, target)]
        if None not in sizes and sizes[0] != sizes[1]:
            raise ValueError(
                f"the draft model has {sizes[0]} ids, the model {sizes[1]}; they must be of one "
                "vocabulary"
            )
        return target

    def init(self, inputs):
        text = inputs.text
        return DraftModelState(self.target.prefill(inputs.params, text), text.length - 1)

    def resume(self, inputs, draft_state):
        text = inputs.text
        state = self.target.prefill(inputs.params, text, draft_state.state)
        return DraftModelState(state, text.length - 1)

    def propose(self, inputs, draft_state):
        weights, text, how = inputs.params, inputs.text, inputs.sampling
        # An EOS that is pending has ended its row. `Method.append` may take it back.
        if (eos := how.vocabulary.eos) is not None:
            text = Text(text.ids, text.length - (text.pending[:, 0] == eos))
        # A row without new bytes has ended, and its draft is never read.
        awake = draft_state.seen < text.length
        logits, here, caught_up = self._catch_up(weights, draft_state, text)
        uniforms = inputs.uniforms(self.draft_length)

        def step(carry, uniform):
            logits, ahead = carry
            drawn = draw(logits, how, uniform[:, None])
            count = awake.astype(jnp.int32)
            logits, trial = self.target.extend(weights, ahead, drawn.ids, most=count)
            return (logits, self.target.commit(trial, count)), drawn

        (logits, ahead), most = scan(step, (logits, here), uniforms[:, :-1].T)
        draft = draft_of(
            in_a_row(scanned(most), draw(logits, how, uniforms[:, -1:])),
            length=jnp.where(awake, self.draft_length, 0),
            passes=no_passes(len(awake))._replace(
                draft_model=caught_up + awake * (self.draft_length - 1)
            ),
        )
        return draft, DraftModelState(self.target.rewind(ahead, here), text.length)

    def _catch_up(
        self, weights, draft_state: DraftModelState, text: Text
    ) -> tuple[Float[Array, "B 1 V"], State, Int[Array, " B"]]:
        """Processes the rest of the text; returns the logits after it, the state and the passes."""
        width = self.target.window
        assert width is not None  # `in_windows` set it

        def look(state, seen):
            window = seen[:, None] + jnp.arange(width)
            window = jnp.take_along_axis(text.ids, window, axis=1, mode="clip")
            count = jnp.clip(text.length - seen, 0, width)
            logits, trial = self.target.extend(weights, state, window, most=count)
            logits = jnp.take_along_axis(logits, jnp.maximum(count - 1, 0)[:, None, None], axis=1)
            return logits, self.target.commit(trial, count), count

        def step(carry):
            before, state, seen, passes = carry
            logits, state, count = look(state, seen)
            logits = jnp.where((count > 0)[:, None, None], logits, before)
            return logits, state, seen + count, passes + (count > 0)

        state, seen = draft_state.state, draft_state.seen
        shape = jax.eval_shape(look, state, seen)[0]
        start = jnp.zeros(shape.shape, shape.dtype), state, seen, jnp.zeros_like(seen)
        logits, state, _, passes = jax.lax.while_loop(
            lambda carry: (carry[2] < text.length).any(), step, start
        )
        return logits, state, passes


def build(options: DraftModel, model: Model) -> Method:
    """Returns the method that its options describe, whose draft model is loaded."""
    return Method(model.target(), drafter_of(options, model))


def drafter_of(options: DraftModel, model: Model) -> DraftModelDrafter:
    """Returns the drafter of these options."""
    length = checked_length(options.draft_length, model)
    return DraftModelDrafter(options.draft_model.target(), length)
