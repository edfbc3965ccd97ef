"""Skipping the draft of a round."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from bytelax.decode.draft import Draft
from bytelax.decode.drafters.base import Drafter, DraftInput, DraftState


def propose_if(
    wanted: Bool[Array, ""],
    drafter: Drafter,
    inputs: DraftInput,
    draft_state: DraftState,
) -> tuple[Draft, DraftState]:
    """Calls `drafter.propose` if `wanted`, and otherwise returns an empty draft and the same state.

    `Draft.computed` and `Draft.state` are dropped, since they would not exist without a draft.
    """

    def propose(draft_state):
        draft, draft_state = drafter.propose(inputs, draft_state)
        return draft.alone(), draft_state

    shapes, _ = jax.eval_shape(propose, draft_state)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def once(carry):
        _, _, draft_state = carry
        return jnp.zeros((), bool), *propose(draft_state)

    # A loop of at most one iteration updates the caches in place; a cond would copy them.
    _, draft, draft_state = jax.lax.while_loop(
        lambda carry: carry[0], once, (wanted, nothing, draft_state)
    )
    return draft, draft_state
