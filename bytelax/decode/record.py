"""The record of every round: counters, and the provenance of each byte."""

import enum

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from bytelax.decode.acceptance import Emitted
from bytelax.decode.draft import Draft, DraftPasses, no_passes
from bytelax.models.pytree import pytree


@pytree
class Counts:
    """Counters of the compiled decoding loop, one number per row.

    Attributes:
      rounds: draft-verify-commit rounds in which the row was running.
      bytes: ids emitted, including EOS and stop strings.
      drafted: bytes proposed, without those that lie after an end of the text: of the byte budget,
        or after a drafted EOS or stop string. They could not be kept.
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

    The draft is cut where its text would end. Rows with a `count` of 0 did not run, and their
    counters stay as they are.
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


class Origin(enum.IntEnum):
    """Where a byte of a text comes from."""

    PROMPT = 0  # part of the prompt
    PLAIN = 1  # the target's own, in a round without a draft
    DRAFTED = 2  # drafted and accepted
    CORRECTED = 3  # the target's own, in place of a rejected byte
    FREE = 4  # the target's own, after a fully accepted draft (the bonus byte)


@pytree
class Origins:
    """Provenance of every byte of one text or of a batch of texts.

    Attributes:
      kind: an `Origin` code for each byte.
    """

    kind: Int[Array | np.ndarray, "*B L"]

    def __getitem__(self, index) -> "Origins":
        return Origins(self.kind[index])

    @property
    def names(self) -> list[str]:
        """The kinds of a single text as lower-case names."""
        return [Origin(int(kind)).name.lower() for kind in self.kind]


def no_origins(batch: int, length: int) -> Origins:
    """Returns the origins of a batch of texts that consist of their prompts only."""
    return Origins(jnp.zeros((batch, length), jnp.int8))


def origins_of(draft: Draft, emitted: Emitted) -> Origins:
    """Returns the origins [B, W] of the ids of a round; undefined from `emitted.count` on."""
    is_drafted = jnp.arange(emitted.ids.shape[1]) < emitted.drafted[:, None]
    whole = emitted.drafted == draft.length
    own = jnp.where(whole, Origin.FREE, Origin.CORRECTED)
    own = jnp.where(draft.length == 0, Origin.PLAIN, own)
    return Origins(jnp.where(is_drafted, Origin.DRAFTED, own[:, None]).astype(jnp.int8))
