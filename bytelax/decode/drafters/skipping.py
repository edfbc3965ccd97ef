"""A drafter that is asked only in some rounds."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from bytelax.decode.drafters.base import Draft, Drafter, DraftState
from bytelax.decode.target import State, Text


def propose_if(
    wanted: Bool[Array, ""],
    drafter: Drafter,
    params,
    draft_state: DraftState,
    text: Text,
    state: State,
    key: Key[Array, " B"],
) -> tuple[Draft, DraftState]:
    """`drafter.propose` where `wanted`; else no draft, no pass, and the state as it is.

    What a draft has computed for the target is left out: without a draft there would be none.
    """

    def propose(draft_state):
        draft, draft_state = drafter.propose(params, draft_state, text, state, key)
        return dataclasses.replace(draft, computed=None), draft_state

    shapes, _ = jax.eval_shape(propose, draft_state)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def once(carry):
        _, _, draft_state = carry
        return jnp.zeros((), bool), *propose(draft_state)

    # A loop of one turn or none updates its caches in place; the branches of a cond copy them.
    _, draft, draft_state = jax.lax.while_loop(
        lambda carry: carry[0], once, (wanted, nothing, draft_state)
    )
    return draft, draft_state
