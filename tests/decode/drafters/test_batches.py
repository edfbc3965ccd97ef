"""Ragged rows: what else is in the batch or behind a text changes no byte, and rows end in drafts.

The models know three byte values, so that drafts are often right, and EOS and stop strings come up
by themselves.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import Origin, Sampling, Stops, Text, sampling, stopping
from bytelax.decode import method as method_module
from bytelax.systems import lookup
from tests.helpers import decoding as loops
from tests.helpers import setups

BATCH, BUFFER, LONGEST, MOST = 7, 64, 16, 24
STOPS = (b"\x00\x01\x02", b"\x02\x02\x00", b"\x01\x01\x01", b"\x00\x02\x00\x01")
NEVER = tuple(b"\xff" * len(stop) for stop in STOPS)  # of the same shapes
CASES = setups.SETUPS | setups.LOSSY


@dataclasses.dataclass(frozen=True)
class Rows:
    """A batch that is asked for: ids [B, BUFFER], the others [B]."""

    ids: np.ndarray
    length: np.ndarray
    budget: np.ndarray
    seed: np.ndarray

    @classmethod
    def at_random(cls, seed):
        """Ragged prompts with anything behind them, and budgets from none to `MOST`."""
        rng = np.random.default_rng(seed)
        ids = rng.integers(vocab.EOS, setups.SMALL, (BATCH, BUFFER), np.int32)
        length = rng.integers(1, LONGEST + 1, BATCH).astype(np.int32)
        there = np.arange(BUFFER) < length[:, None]
        ids[there & (ids < vocab.OFFSET)] = vocab.OFFSET
        ids[:, 0] = vocab.BOS
        budget = rng.integers(0, MOST + 1, BATCH).astype(np.int32)
        return cls(ids, length, budget, rng.integers(0, 1 << 31, BATCH).astype(np.uint32))

    def __getitem__(self, index):
        return Rows(*(getattr(self, field.name)[index] for field in dataclasses.fields(self)))

    def beside(self, others, row):
        """One of these rows in the company of others; behind its text stands what they have."""
        mine = np.arange(len(self.length)) == row
        text = mine[:, None] & (np.arange(BUFFER) < self.length[:, None])
        return Rows(
            np.where(text, self.ids, others.ids),
            *(
                np.where(mine, getattr(self, name), getattr(others, name))
                for name in ("length", "budget", "seed")
            ),
        )


def run(name, rows, *, stops=STOPS):
    """What becomes of the rows, on the host."""
    setup = CASES[name]()
    decoding = loops.decode(
        setup.params,
        Text(jnp.asarray(rows.ids), jnp.asarray(rows.length)),
        jnp.asarray(rows.budget),
        jnp.asarray(rows.seed),
        Sampling.of(BATCH, temperature=0.8),
        Stops.of(stops),
        method=setup.method(),
    )
    return jax.device_get(decoding)


def emitted(decoding, row):
    return decoding.text.ids[row, decoding.prompt[row] : decoding.text.length[row]].tolist()


def assert_same_row(decoding, row, other, there):
    """Bitwise: the output, what the target thinks of it, where it came from, and the counts."""
    assert emitted(decoding, row) == emitted(other, there)
    for name in ("ended", "log_probs", "origins", "counts"):
        jax.tree.map(
            lambda x, y: np.testing.assert_array_equal(x[row], y[there]),
            getattr(decoding, name),
            getattr(other, name),
        )


@setups.each(
    fast=["lookup"],
    slow=["blt-s, refreshed", "blt-dv", "eagle tree", "several", "dflash", "predicted latents"],
    names=CASES,
)
def test_a_row_is_the_same_in_any_company(name):
    rows = Rows.at_random(seed=0)
    first = run(name, rows)
    order = np.roll(np.arange(BATCH), 1)
    moved = run(name, rows[order])
    for there, row in enumerate(order):
        assert_same_row(first, row, moved, there)
    row = int(first.counts.rounds.argmax())
    assert first.counts.rounds[row] >= 2
    others = Rows.at_random(seed=2)
    idle = dataclasses.replace(others, budget=np.zeros_like(others.budget))
    for company in (others, idle):
        assert_same_row(first, row, run(name, rows.beside(company, row)), row)


def ending(ids, budget):
    """How many of the ids stand, and why the row ends with them: id by id."""
    for end, last in enumerate(ids, 1):
        if last == vocab.EOS:
            return end, stopping.BY_EOS
        if vocab.decode(ids[:end]).endswith(STOPS):
            return end, stopping.BY_STOP
        if end == budget:
            return end, stopping.BY_LENGTH
    raise AssertionError("the row went on too short")


# An end is the round's affair: a draft that is a chain, a tree, kept as it is, verified.
@setups.each(fast=["lookup"], slow=["blt-d", "medusa tree"], names=CASES)
def test_rows_end_inside_a_draft(name):
    """The output is the beginning of what would have come, and the statistics are its own."""
    reasons, inside, most = set(), 0, CASES[name]().drafter.draft_length
    for seed in range(12):
        rows = Rows.at_random(seed)
        endless = dataclasses.replace(rows, budget=np.full_like(rows.budget, MOST))
        free, cut = run(name, endless, stops=NEVER), run(name, rows)
        drafted = cut.origins.kind == Origin.DRAFTED
        for row in np.flatnonzero(rows.budget):
            whole = emitted(free, row)
            count, reason = ending(whole, rows.budget[row])
            assert emitted(cut, row) == whole[:count]
            assert cut.ended[row] == reason
            check_counts(cut.counts, row, count, int(drafted[row].sum()), most)
            reasons.add(reason)
            # A round that is not cut ends with a byte of the target's own, or with a whole block.
            last = drafted[row, cut.text.length[row] - 1]
            inside += last and (name != "blt-d" or count % most > 0)
        for row in np.flatnonzero(rows.budget == 0):
            assert emitted(cut, row) == [] and cut.ended[row] == stopping.BY_LENGTH
            check_counts(cut.counts, row, 0, 0, most)
    assert reasons == {stopping.BY_EOS, stopping.BY_STOP, stopping.BY_LENGTH}
    assert inside


@pytest.fixture
def retraced():
    """What is compiled knows nothing of a fault, and nothing may remember it."""
    jax.clear_caches()
    yield
    jax.clear_caches()


# Faults: each takes the function in whose place it stands.


def keys_by_row(row_keys, seeds, position, purpose):
    return row_keys(seeds + jnp.arange(len(seeds), dtype=jnp.uint32), position, purpose)


def matches_in_padding(matches, text, longest):
    behind = jnp.arange(text.ids.shape[1]) == text.length[:, None]
    return jnp.where(behind, longest, matches(text, longest))


def trim_without_stops(trim, text, emitted, count, *, stops, **limits):
    return trim(text, emitted, count, stops=Stops.of([]), **limits)


def trim_nothing(trim, text, emitted, count, **limits):
    _, ended = trim(text, emitted, count, **limits)
    return count, ended


def count_ended_rows(count_round, counts, draft, count, accepted):
    return count_round(counts, draft, jnp.maximum(count, 1), accepted)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("test", "module", "name", "fault"),
    [
        (test_a_row_is_the_same_in_any_company, sampling, "row_keys", keys_by_row),
        (test_a_row_is_the_same_in_any_company, lookup, "matches", matches_in_padding),
        (test_rows_end_inside_a_draft, stopping, "trim", trim_without_stops),
        (test_rows_end_inside_a_draft, stopping, "trim", trim_nothing),
        (test_rows_end_inside_a_draft, method_module, "count_round", count_ended_rows),
    ],
)
def test_faults_are_found(monkeypatch, retraced, test, module, name, fault):
    monkeypatch.setattr(module, name, functools.partial(fault, getattr(module, name)))
    with pytest.raises(AssertionError):
        test("lookup")


def check_counts(counts, row, emitted, accepted, most):
    """Of the bytes that stand, not of those that were judged."""
    assert counts.bytes[row] == emitted
    assert counts.accepted[row] == counts.accepted_by_position[row].sum() == accepted
    assert counts.drafted[row] == counts.drafted_by_position[row].sum() <= most * counts.rounds[row]
    assert (counts.accepted_by_position[row] <= counts.drafted_by_position[row]).all()
    assert accepted <= emitted <= accepted + counts.rounds[row]
    # Every place is reached once a round at most, and the first ones first.
    assert (np.diff(counts.accepted_by_position[row]) <= 0).all()
