"""`assert_lossless`: what it certifies, and what it says of methods with a fault."""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import testing, vocab
from bytelax.decode import (
    Drafter,
    Empty,
    Method,
    Params,
    Sampling,
    Tree,
    acceptance,
    at_draft,
    certain,
    follow,
    happens,
    lossless,
    prefix,
    process_logits,
    rejection,
    residual,
    sampling,
)
from bytelax.systems import ParallelDrafter
from bytelax.testing import TableDrafter, TableTarget, assert_lossless
from bytelax.testing.chance import Chance
from tests.helpers.marks import exhaustive, slow

table = functools.cache(testing.table)


def certify(target=None, drafter=None, rule=lossless, *, own=1, window=None, **how):
    """Of tables of three byte values."""
    params = Params(table(3, 13), table(3, own))
    assert_lossless(Method(target or TableTarget(), drafter, rule, window), params, **how)


@dataclasses.dataclass(frozen=True)
class Uniform(TableDrafter):
    """A drafter without parameters, which is told how many ids there are."""

    ids: int = 7

    def propose(self, inputs, draft_state):
        level = dataclasses.replace(inputs, params=jnp.zeros((self.ids,) * 3))
        return super().propose(level, draft_state)


class FewerAlone(TableDrafter):
    """No fault: how long a draft is depends on the number of rows."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        length = jnp.minimum(draft.length, 1 if len(draft.length) == 1 else 2)
        return dataclasses.replace(draft, length=length), draft_state


@dataclasses.dataclass(frozen=True)
class Broom(Drafter):
    """A tree: the pending byte has three children, and the first of them has all others."""

    draft_length: int

    def propose(self, inputs, draft_state):
        place = jnp.arange(self.draft_length)
        shape = len(inputs.text.length), self.draft_length
        ids = jnp.broadcast_to(vocab.OFFSET + place % 3, shape)
        parents = jnp.broadcast_to(jnp.where(place < 3, 0, 1), shape)
        return dataclasses.replace(certain(ids), parents=parents), draft_state


SEVERAL = ParallelDrafter(TableDrafter(1), 2)


@pytest.mark.parametrize(
    ("drafter", "how"),
    [
        (Empty(), {}),
        slow(Empty(2), {}),
        slow(Uniform(2), {}),
        exhaustive(FewerAlone(2), {}),
        # Of ten nodes, each takes a verdict and a number: more than any chain here.
        slow(Broom(10), {"rule": Tree(2), "window": 13, "new_bytes": 2}),
        slow(SEVERAL, {"window": 6, "new_bytes": 2, "top_k": 2}),
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_is_lossless_is_certified(drafter, how):
    certify(drafter=drafter, **how)


class RawQ(TableDrafter):
    """It says that it drew from the law before its temperature."""

    def declared(self, logits):
        return process_logits(logits, Sampling.of(len(logits), temperature=1.0))


class ByRow(TableDrafter):
    """Rows draw by their place in the batch."""

    def propose(self, inputs, draft_state):
        rolled = jnp.roll(inputs.key, 1, axis=0) if len(inputs.key) == 128 else inputs.key
        return super().propose(dataclasses.replace(inputs, key=rolled), draft_state)


@dataclasses.dataclass(frozen=True)
class Untrue(TableDrafter):
    """Now and then it says that it drew from a flatter law."""

    when: str = ""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        batch, length = len(draft.length), inputs.text.length
        now = {
            "alone": jnp.full(batch, batch == 1),
            "row 100": jnp.arange(batch) == 100,
            "ring": length > 40,
        }[self.when]
        flat = process_logits(draft.log_probs, Sampling.of(batch, temperature=3.0))
        told = jnp.where(now[:, None, None], flat, draft.log_probs)
        return dataclasses.replace(draft, log_probs=told), draft_state


class Never(TableDrafter):
    """It finds nothing to propose."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        return dataclasses.replace(draft, length=jnp.zeros_like(draft.length)), draft_state


class ForgetsEos(TableTarget):
    """An EOS that was drafted and kept is not read."""

    def commit(self, trial, count):
        last = super().commit(trial, count)["last"]
        return {"last": jnp.where(last == vocab.EOS, vocab.BOE, last)}


class KeepsRefusedEos(TableTarget):
    """An EOS that was drafted and refused is read."""

    def commit(self, trial, count):
        refused = jnp.arange(trial.shape[1]) > count[:, None]
        eos = (refused & (trial == vocab.EOS)).any(1)
        return {"last": jnp.where(eos, vocab.EOS, super().commit(trial, count)["last"])}


class Wraps(TableTarget):
    """It forgets the byte before the last one once it has read 40 bytes in windows."""

    def prefill(self, params, text):
        return super().prefill(params, text) | {"read": jnp.zeros_like(text.length)}

    def extend(self, params, state, window, *, most=None, parents=None):
        last = jnp.where(state["read"] > 40, vocab.BOE, state["last"])
        logits, ids = super().extend(params, {"last": last}, window)
        return logits, (ids, state["read"])

    def commit(self, trial, count):
        ids, read = trial
        return super().commit(ids, count) | {"read": read + count}


@acceptance.lossless_rule
def keeps_none(draft, log_probs, uniforms):
    """Lossless, and useless: what it keeps cannot be wrong."""
    return follow(draft, jnp.zeros_like(draft.length), log_probs, uniforms[:, 1])


@acceptance.lossless_rule
def takes_the_last_place(draft, log_probs, uniforms):
    """What follows a whole draft is drawn at the last place of a window."""
    place = jnp.arange(log_probs.shape[1])[:, None] == draft.length[:, None, None]
    return rejection(draft, jnp.where(place, log_probs[:, -1:], log_probs), uniforms)


@acceptance.lossless_rule
def subtracts_what_was_not_drafted(draft, log_probs, uniforms):
    """The residual reads the drafter's law behind the draft, where there is none."""
    ratio = jnp.exp(at_draft(log_probs[:, :-1] - draft.log_probs, draft))
    count = prefix(draft, happens(ratio, uniforms[:, 0, :-1]))
    q = jnp.pad(jnp.exp(draft.log_probs), ((0, 0), (0, 1), (0, 0)))
    return follow(draft, count, residual(jnp.exp(log_probs), q), uniforms[:, 1])


NOT_LOSSLESS = "the method is not lossless"
FAULTS = [
    slow(
        {"drafter": RawQ(2, temperature=0.5)},
        rf"the ids \(\d+, .*\) is off by [0-9.e-]+: {NOT_LOSSLESS}",
    ),
    slow({"drafter": ByRow(1)}, r"another order of the rows .* ids \[1, \d+.*\]"),
    slow({"drafter": Untrue(1, when="alone")}, f"in a batch of one row .*: {NOT_LOSSLESS}"),
    exhaustive({"drafter": Untrue(1, when="row 100")}, "another order of the rows"),
    exhaustive({"drafter": Untrue(1, when="ring")}, f"after 64 bytes: {NOT_LOSSLESS}"),
    slow({"target": Wraps()}, f"after 64 bytes: {NOT_LOSSLESS}"),
    ({"target": ForgetsEos()}, r"an EOS .* after the ids \[1, .*2.*\]"),
    exhaustive(
        {"target": KeepsRefusedEos(), "drafter": TableDrafter(1, temperature=0.0)}, "an EOS"
    ),
    slow({"rule": takes_the_last_place}, f"a window of 4: {NOT_LOSSLESS}"),
    slow(
        {"drafter": TableDrafter(2, ragged=True), "rule": subtracts_what_was_not_drafted},
        NOT_LOSSLESS,
    ),
    # What would pass because nothing was tested.
    slow({"rule": keeps_none}, "kept no drafted byte"),
    exhaustive({"drafter": Never(2), "rule": rejection}, "kept no drafted byte"),
    slow(
        {"drafter": TableDrafter(2, temperature=0.8, top_p=0.9), "own": 13},
        "no refusal was tested",
    ),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS)
def test_a_fault_is_told(fault, says):
    with pytest.raises(AssertionError, match=says):
        certify(**{"drafter": TableDrafter(1)} | fault)


def test_too_many_texts_and_none_are_refused_before_any_draft_is_enumerated(monkeypatch):
    monkeypatch.setattr(Chance, "outcomes", lambda *_: pytest.fail("enumerated"))
    params, method = Params(table(20, 13), table(20, 1)), Method(TableTarget(), TableDrafter(2))
    with pytest.raises(ValueError, match="more than 4,000 texts of 4 ids may follow"):
        assert_lossless(method, params, top_p=1.0)
    with pytest.raises(ValueError, match="new_bytes must be at least 1, got 0"):
        assert_lossless(method, params, new_bytes=0)


@pytest.mark.parametrize("edge", [0.1, 0.5, 0.9])
def test_a_number_used_in_another_way_is_noticed(edge):
    def program(batch):
        keys = sampling.row_keys(batch, jnp.zeros_like(batch, jnp.int32), sampling.DRAFT)
        return sampling.row_uniforms(keys, 1) < edge, ()

    with pytest.raises(AssertionError, match="used otherwise than in"):
        list(Chance(program, rows=4).outcomes(np.zeros(64, np.uint32)))


def test_parts_that_know_different_numbers_are_run_together():
    """The last row waits, and is run with both parts of the third, whose number is known."""

    def program(batch):
        keys = sampling.row_keys(batch, jnp.zeros_like(batch, jnp.int32), sampling.DRAFT)
        uniform = sampling.row_uniforms(keys, 1)[:, 0]
        return sampling.happens(jnp.where(batch == 0, 0.25, 1.0), uniform), ()

    found = np.zeros((4, 2))
    batch = np.array([1, 2, 0, 3], np.uint32)
    for happened, _, row, share in Chance(program, rows=3).outcomes(batch):
        np.add.at(found, (row, happened.astype(int)), share)
    np.testing.assert_allclose(found, [[0, 1], [0, 1], [0.75, 0.25], [0, 1]], atol=1e-6)
