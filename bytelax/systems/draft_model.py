"""Speculative decoding with a separate, smaller model that drafts.

Source: speculative sampling, Leviathan et al., arXiv 2211.17192.
"""

import dataclasses
from typing import Any

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
    """The draft model's state, with the bytes of its last draft that it has processed.

    Attributes:
      state: after the draft, in whose caches the states of drafted bytes are kept.
      seen: number of bytes that the text had before the draft.
      drafted: the drafted ids that were processed; -1 in a row that drafted nothing.
      places: what `Rewindable.place` returned before each of these ids, and after the last.
    """

    state: State
    seen: Int[Array, " B"]
    drafted: Int[Array, "B K-1"]
    places: Any


@dataclasses.dataclass(frozen=True)
class DraftModelDrafter(Drafter):
    """Drafts `draft_length` bytes one by one with a smaller model, under the request's sampling.

    Each draft but its last byte lies in the draft model's caches. The next call of `propose` goes
    back to where the text left the draft, whoever wrote the text. If every round proposes, one or
    two bytes are new then, and a draft of K bytes takes K passes; if other drafters have had
    their turns, the text between is processed in windows of K + 1 bytes first. So `commit` has
    nothing to do.

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
        state = self.target.prefill(inputs.params, inputs.text)
        return self._undrafted(state, inputs.text.length - 1)

    def resume(self, inputs, draft_state):
        state, seen = self._back(draft_state, inputs.text)
        state = self.target.prefill(inputs.params, inputs.text, state)
        # A row that got nothing may have been read to its end. It drafts from its next byte on.
        return self._undrafted(state, jnp.maximum(seen, inputs.text.length - 1))

    def propose(self, inputs, draft_state):
        weights, text, how = inputs.params, inputs.text, inputs.sampling
        # An EOS that is pending has ended its row. `Method.append` may take it back.
        if (eos := how.vocabulary.eos) is not None:
            text = Text(text.ids, text.length - (text.pending[:, 0] == eos))
        # A row without new bytes drafts nothing: it has ended, or goes on where it had ended.
        awake = draft_state.seen < text.length
        state, seen = self._back(draft_state, text)
        state, seen, passes = self._catch_up(weights, state, seen, text)
        logits, state = self._process(weights, state, text, seen, text.length - seen, width=2)
        uniforms = inputs.uniforms(self.draft_length)

        def step(carry, uniform):
            logits, ahead = carry
            drawn = draw(logits, how, uniform[:, None])
            drawn = drawn._replace(ids=self.target.agreed(drawn.ids))  # what `_back` reads
            count = awake.astype(jnp.int32)
            logits, trial = self.target.extend(weights, ahead, drawn.ids, most=count)
            return (logits, self.target.commit(trial, count)), (drawn, self.target.place(ahead))

        (logits, ahead), (most, places) = scan(step, (logits, state), uniforms[:, :-1].T)
        most = scanned(most)
        draft = draft_of(
            in_a_row(most, draw(logits, how, uniforms[:, -1:])),
            length=jnp.where(awake, self.draft_length, 0),
            passes=no_passes(len(awake))._replace(draft_model=passes + awake * self.draft_length),
        )
        places = jax.tree.map(
            lambda each, last: jnp.concatenate([jnp.moveaxis(each, 0, 1), last[:, None]], axis=1),
            places,
            self.target.place(ahead),
        )
        drafted = jnp.where(awake[:, None], most.ids, -1)
        return draft, DraftModelState(ahead, text.length, drafted, places)

    def _undrafted(self, state: State, seen: Int[Array, " B"]) -> DraftModelState:
        """Returns the state of the drafter when `seen` bytes and no draft have been processed."""

        def repeated(x):
            return jnp.repeat(x[:, None], self.draft_length, axis=1)

        drafted = jnp.full((len(seen), self.draft_length - 1), -1, jnp.int32)
        places = jax.tree.map(repeated, self.target.place(state))
        return DraftModelState(state, seen, drafted, places)

    def _back(self, draft_state: DraftModelState, text: Text) -> tuple[State, Int[Array, " B"]]:
        """Goes back to where a text leaves the draft; returns the state and the bytes processed.

        The last byte of the text is always left to process, since its logits are needed.
        """
        seen, drafted = draft_state.seen, draft_state.drafted
        at = seen[:, None] + jnp.arange(drafted.shape[1])
        written = jnp.take_along_axis(text.ids, at, axis=1, mode="clip")
        agrees = (written == drafted) & (at < text.length[:, None] - 1)
        kept = jnp.cumprod(agrees.astype(jnp.int32), axis=1).sum(1)
        place = jax.tree.map(
            lambda x: jax.vmap(lambda row, index: row[index])(x, kept), draft_state.places
        )
        return self.target.rewind(draft_state.state, place), seen + kept

    def _catch_up(
        self, weights, state: State, seen: Int[Array, " B"], text: Text
    ) -> tuple[State, Int[Array, " B"], Int[Array, " B"]]:
        """Processes a text up to its last two bytes, in passes that are returned as well."""
        width = self.target.window
        assert width is not None  # `in_windows` set it

        def todo(seen):
            return text.length - 2 - seen

        def step(carry):
            state, seen, passes = carry
            count = jnp.clip(todo(seen), 0, width)
            _, state = self._process(weights, state, text, seen, count, width=width)
            return state, seen + count, passes + (count > 0)

        return jax.lax.while_loop(
            lambda carry: (todo(carry[1]) > 0).any(), step, (state, seen, jnp.zeros_like(seen))
        )

    def _process(
        self,
        weights,
        state: State,
        text: Text,
        seen: Int[Array, " B"],
        count: Int[Array, " B"],
        *,
        width: int,
    ) -> tuple[Float[Array, "B 1 V"], State]:
        """Processes `count` bytes of each row, 0..`width`; returns the logits after the last."""
        window = seen[:, None] + jnp.arange(width)
        window = jnp.take_along_axis(text.ids, window, axis=1, mode="clip")
        logits, trial = self.target.extend(weights, state, window, most=count)
        logits = jnp.take_along_axis(logits, jnp.maximum(count - 1, 0)[:, None, None], axis=1)
        return logits, self.target.commit(trial, count)


def build(options: DraftModel, model: Model) -> Method:
    """Returns the method that its options describe, whose draft model is loaded."""
    return Method(model.target(), drafter_of(options, model))


def drafter_of(options: DraftModel, model: Model) -> DraftModelDrafter:
    """Returns the drafter of these options."""
    length = checked_length(options.draft_length, model)
    return DraftModelDrafter(options.draft_model.target(), length)
