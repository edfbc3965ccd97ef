"""Drafters that shorten drafts without changing the output distribution.

The rule is that of `Draft.length`: place j may be left out because of what came before it, never
because of the id drawn there. Windows keep their width, so a shorter draft saves what verifying
costs beyond it (a BLT's patches), and an empty one the drafting.
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

# Of Draft & Verify (arXiv 2309.08168): where an adapted threshold begins.
_GREEDY_START, _SAMPLED_START = 0.8, 0.5


def stop_below(drafter: Drafter, threshold: float) -> "StopBelow":
    """Ends each row's draft with its first byte whose confidence is below `threshold`."""
    return StopBelow(drafter, threshold)


def stop_adaptively(
    drafter: Drafter, threshold: float | None = None, *, wanted: float = 0.9, step: float = 0.01
) -> "StopAdaptively":
    """As `stop_below`, with a threshold for each row that follows how much of its drafts was kept.

    Args:
      drafter: proposes.
      threshold: of the first round; None is 0.8 under greedy sampling and 0.5 else, as published.
      wanted: share of the drafted bytes that should be kept; below it drafts get shorter.
      step: distance to the next aim; each round moves a tenth of it.
    """
    return StopAdaptively(drafter, threshold, wanted, step)


def by_batch(drafter: Drafter, table: Mapping[int, int]) -> "ByBatch":
    """Drafts as many bytes as the number of rows that are still running allows.

    Args:
      drafter: proposes.
      table: `{rows: length}`: from that many rows on, at most that many bytes; 0 drafts nothing.
        Fewer rows than the least entry are not limited.
    """
    return ByBatch(drafter, tuple(sorted(table.items())))


@dataclasses.dataclass(frozen=True)
class StopBelow:
    """See `stop_below`: the fixed threshold of Draft & Verify (arXiv 2309.08168).

    The byte that falls below is kept, and the cut comes after it. Cut before it, the drafts that
    show a byte there would be those that drew a likely one: conditioned on being seen, the id no
    longer has the law that acceptance divides by, and likely bytes come out too often. Kept, the
    choice for place j is made of ids before j alone.
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
    matching: Float[Array, " B"]  # share of drafted bytes that were kept, the latest rounds most
    drafted: Int[Array, " B"]  # bytes offered since the last commit
    whole: Bool[Array, " B"]  # nothing was cut from them


@dataclasses.dataclass(frozen=True)
class StopAdaptively:
    """See `stop_adaptively`: the adaptive threshold of Draft & Verify (arXiv 2309.08168).

    A cut depends on rounds that are over and on earlier bytes of the draft, as in `StopBelow`.
    Rounds without a draft teach nothing. Behind another part of a `chain`, whose bytes it may have
    judged as its own, the controller can be misled; the output law cannot.
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
    """The threshold and the matching rate after a round, of Draft & Verify (section 3.3).

    Args:
      threshold: before it.
      matching: before it.
      accepted: drafted bytes that were kept.
      drafted: bytes that were offered.
      whole: whether the threshold cut nothing off.
      wanted: matching rate below which the threshold rises.
      step: how far away the new aim lies, of which the threshold goes a tenth of the way.
    """
    matching = 0.5 * matching + 0.5 * accepted / jnp.maximum(drafted, 1)
    aim = threshold + jnp.where(matching < wanted, step, jnp.where(whole, 0.0, -step))
    # Beyond 0..1 no draft would change, and the way back would be longer.
    return jnp.clip(0.9 * threshold + 0.1 * aim, 0.0, 1.0), matching


def _cut(draft: Draft, threshold: Float[Array, " B"]) -> Draft:
    """Truncates the draft behind its first byte below the threshold."""
    draft = draft.written_out()
    sure = jnp.cumprod(draft.confidence >= threshold[:, None], axis=1).sum(1)
    return dataclasses.replace(draft, length=jnp.minimum(draft.length, sure + 1))


def _check(threshold):
    if not 0 <= threshold <= 1:
        raise ValueError(f"a threshold of confidence lies in 0..1, got {threshold}")


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
