"""Counters of the decoding loop: rounds, drafted and accepted bytes, forward passes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from bytelax.decode.draft import Draft, DraftPasses, no_passes
from bytelax.pytree import pytree


@pytree
class Counts:
    """Counters of the compiled decoding loop, one number per row.

    Attributes:
      rounds: draft-verify-commit rounds in which the row was running.
      bytes: ids emitted, including EOS and stop strings.
      drafted: bytes proposed.
      accepted: proposed bytes that were emitted.
      accepted_by_position: `accepted` for each position in the draft.
      drafted_by_position: `drafted` for each position in the draft.
      draft_passes: forward passes made to propose.
    """

    rounds: Int[Array, " B"]
    bytes: Int[Array, " B"]
    drafted: Int[Array, " B"]
    accepted: Int[Array, " B"]
    accepted_by_position: Int[Array, "B K"]
    drafted_by_position: Int[Array, "B K"]
    draft_passes: DraftPasses


def no_counts(batch: int, draft_length: int) -> Counts:
    """Returns counters at zero."""
    return Counts(
        rounds=jnp.zeros(batch, jnp.int32),
        bytes=jnp.zeros(batch, jnp.int32),
        drafted=jnp.zeros(batch, jnp.int32),
        accepted=jnp.zeros(batch, jnp.int32),
        accepted_by_position=jnp.zeros((batch, draft_length), jnp.int32),
        drafted_by_position=jnp.zeros((batch, draft_length), jnp.int32),
        draft_passes=no_passes(batch),
    )


def count_round(
    counts: Counts, draft: Draft, count: Int[Array, " B"], accepted: Int[Array, " B"]
) -> Counts:
    """Adds a round that emitted `count` ids, the first `accepted` of which were drafted.

    Rows with a `count` of 0 did not run, and their counters stay as they are.
    """
    ran = count > 0
    place = jnp.arange(draft.ids.shape[1])
    was_drafted = ran[:, None] & (place < draft.length[:, None])
    was_accepted = was_drafted & (place < jnp.minimum(accepted, count)[:, None])
    return Counts(
        rounds=counts.rounds + ran,
        bytes=counts.bytes + count,
        drafted=counts.drafted + was_drafted.sum(1),
        accepted=counts.accepted + was_accepted.sum(1),
        accepted_by_position=counts.accepted_by_position + was_accepted,
        drafted_by_position=counts.drafted_by_position + was_drafted,
        draft_passes=jax.tree.map(
            lambda total, made: total + jnp.where(ran, made, 0), counts.draft_passes, draft.passes
        ),
    )
