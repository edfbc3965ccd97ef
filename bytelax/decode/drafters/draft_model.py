"""A small model of the same bytes drafts for the large one."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, no_passes
from bytelax.decode.target import Rewindable, State, Text, in_windows
from bytelax.pytree import pytree


@pytree
class DraftModelState:
    """The draft model's state after `seen` bytes of the text, and no drafted byte."""

    state: State
    seen: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftModel:
    """Proposes `draft_length` bytes, one after another, under the law of the request.

    Its caches stand at the text as it was when it last proposed. `propose` first takes in what came
    since, whoever drafted it, in windows of K + 1 bytes: one, if every round proposes. Then
    it runs ahead of the text, a byte a pass, and goes back. So `commit` has nothing to do, and a
    draft of K bytes takes K passes.

    Its parameters are those of its model.

    Attributes:
      target: the draft model.
      draft_length: K, bytes drafted.
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

    def propose(self, inputs, draft_state):
        weights, law, text = inputs.params, inputs.sampling, inputs.text
        # A row with nothing new stands still: it has ended, and nobody reads its draft.
        awake = draft_state.seen < text.length
        logits, here, caught_up = self._catch_up(weights, draft_state, text)
        uniforms = inputs.uniforms(self.draft_length).T

        def draw(logits, uniform):
            log_probs = sampling.process_logits(logits[:, None], law)[:, 0]
            ids = sampling.sample(log_probs, uniform)
            own = jnp.take_along_axis(jax.nn.softmax(logits), ids[:, None], axis=1)[:, 0]
            return ids, log_probs, own

        def step(carry, uniform):
            logits, ahead = carry
            drawn = draw(logits, uniform)
            logits, trial = self.target.extend(weights, ahead, drawn[0][:, None], running=awake)
            ahead = self.target.commit(trial, awake.astype(jnp.int32))
            return (logits[:, 0], ahead), drawn

        (logits, ahead), most = jax.lax.scan(step, (logits, here), uniforms[:-1])
        last = draw(logits, uniforms[-1])
        ids, log_probs, own = jax.tree.map(
            lambda most, last: jnp.concatenate([most, last[None]]).swapaxes(0, 1), most, last
        )
        batch = text.ids.shape[0]
        passes = caught_up + awake * (self.draft_length - 1)
        draft = Draft(
            ids=ids,
            length=jnp.where(awake, self.draft_length, 0),
            log_probs=log_probs,
            step=jnp.broadcast_to(1 + jnp.arange(self.draft_length), ids.shape),
            passes=no_passes(batch)._replace(draft_model=passes),
            confidence=own,
        )
        return draft, DraftModelState(self.target.rewind(ahead, here), text.length)

    def commit(self, inputs, draft_state, trial, count):
        return draft_state

    def _catch_up(
        self, weights, draft_state: DraftModelState, text: Text
    ) -> tuple[Float[Array, "B V"], State, Int[Array, " B"]]:
        """Takes in the rest of the text; returns the logits behind it, the state and the passes."""
        width = self.target.window

        def look(state, seen):
            window = seen[:, None] + jnp.arange(width)
            window = jnp.take_along_axis(text.ids, window, axis=1, mode="clip")
            count = jnp.clip(text.length - seen, 0, width)
            logits, trial = self.target.extend(weights, state, window, running=count > 0)
            logits = jnp.take_along_axis(logits, jnp.maximum(count - 1, 0)[:, None, None], axis=1)
            return logits[:, 0], self.target.commit(trial, count), count

        def step(carry):
            before, state, seen, passes = carry
            logits, state, count = look(state, seen)
            logits = jnp.where((count > 0)[:, None], logits, before)
            return logits, state, seen + count, passes + (count > 0)

        state, seen = draft_state.state, draft_state.seen
        shape = jax.eval_shape(look, state, seen)[0]
        start = jnp.zeros(shape.shape, shape.dtype), state, seen, jnp.zeros_like(seen)
        logits, state, _, passes = jax.lax.while_loop(
            lambda carry: (carry[2] < text.length).any(), step, start
        )
        return logits, state, passes
