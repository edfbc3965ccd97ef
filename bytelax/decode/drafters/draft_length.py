"""How much of a draft is offered. Lengths are chosen here so that the output law stays as it is.

The rule is that of `Draft.length`: place j may be left out because of what came before it, never
because of the id drawn there. Windows keep their width, so a shorter draft saves what verifying
costs beyond it (a BLT's patches), and an empty one the drafting.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool

from bytelax.decode.drafters.base import Drafter, confidence
from bytelax.decode.drafters.compose import is_text_only
from bytelax.decode.drafters.skipping import propose_if
from bytelax.pytree import pytree


def stop_below(drafter: Drafter, threshold: float) -> "StopBelow":
    """Ends each row's draft with its first byte whose confidence is below `threshold`."""
    return StopBelow(drafter, threshold)


def by_batch(drafter: Drafter, table: Mapping[int, int]) -> "ByBatch":
    """Drafts so many bytes as the number of rows that are still running allows.

    Args:
      drafter: proposes.
      table: `{rows: length}`: from that many rows on, at most that many bytes; 0 drafts nothing.
        Fewer rows than the least entry are not limited.
    """
    return ByBatch(drafter, tuple(sorted(table.items())))


@dataclasses.dataclass(frozen=True)
class StopBelow:
    """See `stop_below`. Draft & Verify (arXiv 2309.08168) ends its drafts so.

    The byte that falls below is kept, and the cut comes after it. Cut before it, the drafts that
    show a byte there would be those that drew a likely one: conditioned on being seen, the id no
    longer has the law that acceptance divides by, and likely bytes come out too often. Kept, the
    choice for place j is made of ids before j alone.
    """

    drafter: Drafter
    threshold: float

    def __post_init__(self):
        if not 0 <= self.threshold <= 1:
            raise ValueError(f"a threshold of confidence lies in 0..1, got {self.threshold}")

    @property
    def width(self) -> int:
        return self.drafter.width

    @property
    def text_only(self) -> bool:
        return is_text_only(self.drafter)

    def init(self, params, text, state):
        return self.drafter.init(params, text, state)

    def propose(self, params, draft_state, text, state, key):
        draft, draft_state = self.drafter.propose(params, draft_state, text, state, key)
        sure = jnp.cumprod(confidence(draft) >= self.threshold, axis=1).sum(1)
        length = jnp.minimum(draft.length, sure + 1)
        return dataclasses.replace(draft, length=length), draft_state

    def commit(self, params, draft_state, trial, count):
        return self.drafter.commit(params, draft_state, trial, count)


@pytree
class ByBatchState:
    """The drafter's state, and which rows moved in the last round."""

    drafter: Any
    running: Bool[Array, " B"]


@dataclasses.dataclass(frozen=True)
class ByBatch:
    """See `by_batch`. Rows that ended in the last round are counted once more.

    How far a row drafts then depends on the others: its law does not, but which bytes a seed draws
    does.
    """

    drafter: Drafter
    table: tuple[tuple[int, int], ...]

    def __post_init__(self):
        if not self.table or any(rows < 0 or length < 0 for rows, length in self.table):
            raise ValueError(f"a table of draft lengths is {{rows: length}}, got {self.table}")

    @property
    def width(self) -> int:
        return self.drafter.width

    def init(self, params, text, state):
        running = jnp.ones(text.ids.shape[0], bool)
        return ByBatchState(self.drafter.init(params, text, state), running)

    def propose(self, params, draft_state, text, state, key):
        rows = draft_state.running.sum()
        limit = jnp.asarray(self.width)
        for least, length in self.table:
            limit = jnp.where(rows >= least, length, limit)
        draft, own = propose_if(
            limit > 0, self.drafter, params, draft_state.drafter, text, state, key
        )
        draft = dataclasses.replace(draft, length=jnp.minimum(draft.length, limit))
        return draft, dataclasses.replace(draft_state, drafter=own)

    def commit(self, params, draft_state, trial, count):
        own = self.drafter.commit(params, draft_state.drafter, trial, count)
        return ByBatchState(own, count > 0)
