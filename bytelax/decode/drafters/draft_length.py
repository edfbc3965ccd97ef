"""Drafters that shorten the drafts of another one, without changing the output distribution.

They obey the rule of `Draft.length`: position j may be dropped because of what came before it, but
never because of the id drawn there. Windows keep their width. A shorter draft saves the part of
verification that depends on its length (the patches of a BLT), and an empty draft saves drafting.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode.draft import Draft
from bytelax.decode.drafters.base import Drafter, fitted
from bytelax.decode.drafters.compose import is_text_only
from bytelax.decode.drafters.skipping import propose_if
from bytelax.pytree import pytree

# Initial values of the adaptive threshold, from Draft & Verify (arXiv 2309.08168).
_GREEDY_START, _SAMPLED_START = 0.8, 0.5


def stop_below(drafter: Drafter, threshold: float) -> "StopBelow":
    """Ends each draft after its first byte whose confidence is below `threshold`."""
    return StopBelow(drafter, threshold)


def stop_adaptively(
    drafter: Drafter, threshold: float | None = None, *, wanted: float = 0.9, step: float = 0.01
) -> "StopAdaptively":
    """Ends drafts as `stop_below` does, at a threshold per row that adapts to its acceptance rate.

    Args:
      drafter: the drafter whose drafts are shortened.
      threshold: threshold of the first round. None is 0.8 for greedy decoding and 0.5 for sampling,
        as published.
      wanted: share of the drafted bytes that should be accepted. Below it, drafts get shorter.
      step: step size of the adaptation; each round changes the threshold by a tenth of it.
    """
    return StopAdaptively(drafter, threshold, wanted, step)


def by_batch(drafter: Drafter, table: Mapping[int, int]) -> "ByBatch":
    """Limits the length of drafts by the number of rows that are still running.

    Args:
      drafter: the drafter whose drafts are shortened.
      table: `{rows: length}`. From that number of rows on, at most `length` bytes are drafted; 0
        drafts nothing. With fewer rows than the smallest entry there is no limit.

    Raises:
      ValueError: the table is empty or has negative entries.
    """
    return ByBatch(drafter, tuple(sorted(table.items())))


@dataclasses.dataclass(frozen=True)
class StopBelow:
    """See `stop_below`: the fixed threshold of Draft & Verify (arXiv 2309.08168).

    The byte below the threshold is kept, and the draft ends after it. If it were dropped, a draft
    would show a byte at that position only when it drew a likely one. Given that the byte is shown,
    it would no longer follow the distribution that acceptance divides by, and likely bytes would be
    emitted too often. With the byte kept, whether position j is drafted depends on the ids before j
    only.
    """

    drafter: Drafter
    threshold: float

    def __post_init__(self):
        _check(self.threshold)

    @property
    def draft_length(self) -> int:
        return self.drafter.draft_length

    def fit(self, target):
        return fitted(self.drafter, target)

    @property
    def text_only(self) -> bool:
        return is_text_only(self.drafter)

    def init(self, inputs):
        return self.drafter.init(inputs)

    def propose(self, inputs, draft_state):
        draft, draft_state = self.drafter.propose(inputs, draft_state)
        return _cut(draft, jnp.full(draft.length.shape, self.threshold)), draft_state

    def commit(self, inputs, draft_state, trial, count):
        return self.drafter.commit(inputs, draft_state, trial, count)


@pytree
class AdaptiveState:
    """Per-row statistics of earlier rounds."""

    drafter: Any
    threshold: Float[Array, " B"]
    matching: Float[Array, " B"]  # moving average of the share of drafted bytes that were accepted
    drafted: Int[Array, " B"]  # bytes proposed since the last commit
    whole: Bool[Array, " B"]  # whether the threshold left the last draft uncut


@dataclasses.dataclass(frozen=True)
class StopAdaptively:
    """See `stop_adaptively`: the adaptive threshold of Draft & Verify (arXiv 2309.08168).

    Where a draft ends depends on earlier rounds and on earlier bytes of the draft, as in
    `StopBelow`. Rounds without a draft change nothing. After another part of a `chain`, the
    controller may take that part's accepted bytes for its own. This can mislead the threshold, but
    never changes the output distribution.
    """

    drafter: Drafter
    threshold: float | None
    wanted: float
    step: float

    def __post_init__(self):
        if self.threshold is not None:
            _check(self.threshold)

    @property
    def draft_length(self) -> int:
        return self.drafter.draft_length

    def fit(self, target):
        return fitted(self.drafter, target)

    @property
    def text_only(self) -> bool:
        return is_text_only(self.drafter)

    def init(self, inputs):
        rows, threshold = inputs.text.ids.shape[0], self.threshold
        if threshold is None:
            threshold = _GREEDY_START if inputs.sampling.greedy else _SAMPLED_START
        return AdaptiveState(
            drafter=self.drafter.init(inputs),
            threshold=jnp.full(rows, threshold, jnp.float32),
            matching=jnp.zeros(rows, jnp.float32),
            drafted=jnp.zeros(rows, jnp.int32),
            whole=jnp.zeros(rows, bool),
        )

    def propose(self, inputs, draft_state):
        most, own = self.drafter.propose(inputs, draft_state.drafter)
        draft = _cut(most, draft_state.threshold)
        return draft, dataclasses.replace(
            draft_state, drafter=own, drafted=draft.length, whole=draft.length == most.length
        )

    def commit(self, inputs, draft_state, trial, count):
        threshold, matching = adapted(
            draft_state.threshold,
            draft_state.matching,
            accepted=jnp.clip(count - 1, 0, draft_state.drafted),  # one byte is the target's own
            drafted=draft_state.drafted,
            whole=draft_state.whole,
            wanted=self.wanted,
            step=self.step,
        )
        learns = (draft_state.drafted > 0) & (count > 0)
        return AdaptiveState(
            drafter=self.drafter.commit(inputs, draft_state.drafter, trial, count),
            threshold=jnp.where(learns, threshold, draft_state.threshold),
            matching=jnp.where(learns, matching, draft_state.matching),
            drafted=jnp.zeros_like(draft_state.drafted),
            whole=draft_state.whole,
        )


def adapted(
    threshold: Float[Array, " B"],
    matching: Float[Array, " B"],
    *,
    accepted: Int[Array, " B"],
    drafted: Int[Array, " B"],
    whole: Bool[Array, " B"],
    wanted: float,
    step: float,
) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
    """Returns the threshold and the acceptance rate after a round (Draft & Verify, section 3.3).

    Args:
      threshold: threshold before the round.
      matching: moving average of the acceptance rate before the round.
      accepted: number of drafted bytes that were accepted.
      drafted: number of bytes that were proposed.
      whole: whether the threshold cut nothing off.
      wanted: acceptance rate below which the threshold rises.
      step: step size; the threshold changes by a tenth of it.
    """
    matching = 0.5 * matching + 0.5 * accepted / jnp.maximum(drafted, 1)
    aim = threshold + jnp.where(matching < wanted, step, jnp.where(whole, 0.0, -step))
    # Beyond 0..1 drafts would not change any more, and the way back would take longer.
    return jnp.clip(0.9 * threshold + 0.1 * aim, 0.0, 1.0), matching


def _cut(draft: Draft, threshold: Float[Array, " B"]) -> Draft:
    """Ends the draft after its first byte whose confidence is below the threshold."""
    draft = draft.written_out()
    assert draft.confidence is not None
    sure = jnp.cumprod(draft.confidence >= threshold[:, None], axis=1).sum(1)
    return dataclasses.replace(draft, length=jnp.minimum(draft.length, sure + 1))


def _check(threshold):
    if not 0 <= threshold <= 1:
        raise ValueError(f"a threshold of confidence lies in 0..1, got {threshold}")


@pytree
class ByBatchState:
    """The drafter's state, and which rows advanced in the last round."""

    drafter: Any
    running: Bool[Array, " B"]


@dataclasses.dataclass(frozen=True)
class ByBatch:
    """See `by_batch`. Rows that ended in the last round still count in the next one.

    The draft length of a row thus depends on the other rows. This changes which bytes a seed draws,
    but not their distribution.
    """

    drafter: Drafter
    table: tuple[tuple[int, int], ...]

    def __post_init__(self):
        if not self.table or any(rows < 0 or length < 0 for rows, length in self.table):
            raise ValueError(f"a table of draft lengths is {{rows: length}}, got {self.table}")

    @property
    def draft_length(self) -> int:
        return self.drafter.draft_length

    def fit(self, target):
        return fitted(self.drafter, target)

    def init(self, inputs):
        running = jnp.ones(inputs.text.ids.shape[0], bool)
        return ByBatchState(self.drafter.init(inputs), running)

    def propose(self, inputs, draft_state):
        rows = draft_state.running.sum()
        limit = jnp.asarray(self.draft_length)
        for least, length in self.table:
            limit = jnp.where(rows >= least, length, limit)
        draft, own = propose_if(limit > 0, self.drafter, inputs, draft_state.drafter)
        draft = dataclasses.replace(draft, length=jnp.minimum(draft.length, limit))
        return draft, dataclasses.replace(draft_state, drafter=own)

    def commit(self, inputs, draft_state, trial, count):
        own = self.drafter.commit(inputs, draft_state.drafter, trial, count)
        return ByBatchState(own, count > 0)
