"""A small model of the same bytes drafts for the large one."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.drafters.base import Draft, no_passes
from bytelax.decode.target import Rewindable, State, Text
from bytelax.pytree import pytree


@pytree
class DraftModelState:
    """What the draft model has taken in: `seen` bytes of the text, never a drafted one."""

    state: State
    seen: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftModel:
    """Proposes `width` bytes, one after another, under the law of the request.

    Its caches stand at the text as it was when it last proposed. `propose` first takes in what came
    since, whoever drafted it, in windows of the target's width: one, if every round proposes. Then
    it runs ahead of the text, a byte a pass, and goes back. So `commit` has nothing to do, and a
    draft of K bytes takes K passes.

    `params["drafter"]` are the parameters of its model.

    Attributes:
      target: the draft model, with a width of at least `width` + 1.
      width: bytes drafted.
    """

    target: Rewindable
    width: int

    def __post_init__(self):
        if self.width < 1:
            raise ValueError(f"a draft model must draft at least 1 byte, got {self.width}")
        if self.target.width <= self.width:
            raise ValueError(
                f"a draft of {self.width} bytes needs a target of width {self.width + 1}, "
                f"got {self.target.width}"
            )

    def init(self, params, text, state):
        return DraftModelState(self.target.prefill(params["drafter"], text), text.length - 1)

    def propose(self, params, draft_state, text, state, key):
        weights, law = params["drafter"], params["law"]
        # A row with nothing new stands still: it has ended, and nobody reads its draft.
        awake = draft_state.seen < text.length
        logits, here, caught_up = self._catch_up(weights, draft_state, text)
        uniforms = sampling.row_uniforms(key, self.width).T

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
        passes = caught_up + awake * (self.width - 1)
        draft = Draft(
            ids=ids,
            length=jnp.where(awake, self.width, 0),
            log_probs=log_probs,
            deterministic=jnp.full(batch, law.greedy),
            step=jnp.broadcast_to(1 + jnp.arange(self.width), (batch, self.width)),
            passes=no_passes(batch)._replace(draft_model=passes),
            confidence=own,
        )
        return draft, DraftModelState(self.target.rewind(ahead, here), text.length)

    def commit(self, params, draft_state, trial, count):
        return draft_state

    def _catch_up(
        self, weights, draft_state: DraftModelState, text: Text
    ) -> tuple[Float[Array, "B V"], State, Int[Array, " B"]]:
        """Takes in the rest of the text; the logits behind it, the state, and the passes taken."""
        width = self.target.width

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
