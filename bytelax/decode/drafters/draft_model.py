"""Speculative decoding with a separate, smaller draft model: one draft per row, or several."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode.draft import draft_of, draw, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafters import Drafter, expect, fitted, resumed
from bytelax.decode.target import Branching, Rewindable, State, Text, in_windows
from bytelax.decode.trees import SpecTr
from bytelax.models.pytree import pytree


@pytree
class DraftModelState:
    """The draft model's state after the first `seen` bytes of the text, without drafted bytes."""

    state: State
    seen: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftModel:
    """Drafts `draft_length` bytes one by one with a smaller model, under the request's sampling.

    Speculative sampling as in Leviathan et al. (arXiv 2211.17192). The draft model's caches hold
    the text as it was at the last call of `propose`. `propose` first processes the bytes emitted
    since then, whoever drafted them, in windows of K + 1 bytes: one window if every round proposes.
    It then runs ahead of the text one byte per pass, and rewinds. So `commit` has nothing to do,
    and a draft of K bytes takes K passes.

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
        object.__setattr__(self, "target", in_windows(self.target, self.draft_length + 1))

    def fit(self, target):
        sizes = [getattr(one, "vocab_size", None) for one in (self.target, target)]
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
            step=1 + jnp.arange(self.draft_length),
            passes=no_passes(len(awake))._replace(
                draft_model=caught_up + awake * (self.draft_length - 1)
            ),
        )
        return draft, DraftModelState(self.target.rewind(ahead, here), text.length)

    def commit(self, inputs, draft_state, trial, count):
        return draft_state

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


@dataclasses.dataclass(frozen=True)
class ParallelDrafts:
    """Proposes `many` independent drafts of one drafter, among which `trees.SpecTr` selects.

    SpecTr (Sun et al., arXiv 2310.15141). Under greedy sampling the drafts would all be equal. The
    drafts of a row are cut to the length of the shortest. They lie in the window position by
    position, so that what pads the window lies behind them all.

    Attributes:
      drafter: proposes each draft.
      many: number of drafts per row.
    """

    drafter: Drafter
    many: int

    def __post_init__(self):
        if self.many < 1:
            raise ValueError(f"there must be at least 1 draft, got {self.many}")

    @property
    def draft_length(self) -> int:
        return self.many * self.drafter.draft_length

    @property
    def judged_by(self) -> SpecTr:
        return SpecTr(self.many)

    def fit(self, target):
        expect(target, Branching, self)
        return fitted(self.drafter, target)

    def init(self, inputs):
        return self.drafter.init(inputs)

    def resume(self, inputs, draft_state):
        return resumed(self.drafter, inputs, draft_state)

    def propose(self, inputs, draft_state):
        def repeated(tree):
            return jax.tree.map(lambda x: jnp.repeat(x, self.many, axis=0), tree)

        keys = jax.vmap(lambda key: jax.random.split(key, self.many))(inputs.key)
        each = dataclasses.replace(
            inputs,
            state=repeated(inputs.state),
            text=repeated(inputs.text),
            sampling=repeated(inputs.sampling),
            key=keys.reshape(-1),
        )
        drafts, states = self.drafter.propose(each, repeated(draft_state))
        drafts = drafts.written_out()
        batch = inputs.text.length.shape[0]

        def flat(x):
            each = x.reshape(batch, self.many, *x.shape[1:])
            return each.swapaxes(1, 2).reshape(batch, self.draft_length, *x.shape[2:])

        parents = jnp.maximum(jnp.arange(self.draft_length) - self.many + 1, 0)
        draft = dataclasses.replace(
            drafts,
            ids=flat(drafts.ids),
            length=self.many * drafts.length.reshape(batch, -1).min(1),
            log_probs=None if drafts.log_probs is None else flat(drafts.log_probs),
            step=flat(drafts.step),
            passes=jax.tree.map(lambda made: made.reshape(batch, -1).sum(1), drafts.passes),
            parents=jnp.broadcast_to(parents, (batch, self.draft_length)),
        )
        # The copies of a row differ only beyond its text, which is never read: keep the first.
        return draft, jax.tree.map(lambda x: x[:: self.many], states)

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)
