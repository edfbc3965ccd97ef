"""Batches of 2, 7 and 64 ragged rows: what else is in the batch or behind a text changes no byte,
and a row ends where it should, inside a draft too.

The models know eight byte values, so that drafts are often right, and EOS and stop strings come up
by themselves.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import methods, vocab
from bytelax.decode import Origin, Params, Sampling, Stops, Text, sampling, stopping
from bytelax.decode import method as method_module
from bytelax.model import Model
from bytelax.options import EagleHead, EarlyExitHead, HeadsConfig, MedusaHead, TwoByteHead
from bytelax.systems import lookup
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models

BUFFER, LONGEST, MOST, K = 64, 16, 24, 3
BLT = models.replace(
    models.VARIANTS["own_embedding"], vocab_size=12, patcher={"vocab_size": 12}, block_size=K
)
LM = models.replace(
    models.BYTE_LMS["window"],
    vocab_size=12,
    trunk={"layers": 3},
    heads=HeadsConfig(
        early_exit=EarlyExitHead(depths=(2,)),
        medusa=MedusaHead(count=K),
        two_byte=TwoByteHead(depths=(2,)),
        eagle=EagleHead(depths=(1, 2, 3)),
    ),
)
STOPS = (b"\x00\x01", b"\x02\x02", b"\x04\x03", b"\x05\x06\x07")
NEVER = tuple(b"\xff" * len(stop) for stop in STOPS)  # of the same shapes
DRAFTERS = {
    "past, reused": (BLT, "blt-s", {"draft_length": K}),
    "past, refreshed": (BLT, "blt-s", {"draft_length": K, "latent": "refresh"}),
    "block, kept": (BLT, "blt-d", {"block_size": K}),
    "block, verified": (BLT, "blt-dv", {"block_size": K, "unmask": "confidence", "alpha": 0.4}),
    "lookup": (LM, lookup.LookupDrafter(K, shortest=1, longest=3), {}),
    "draft model": (LM, "draft-model", {"draft_length": K}),
    "exit": (LM, "early-exit", {"exit_layer": 2, "draft_length": K}),
    "tree of heads": (LM, "medusa", {"branches": (2, 1, 1), "nodes": 6}),
    "draft layer": (LM, "eagle", {"draft_length": K}),
    "tree of the draft layer": (LM, "eagle", {"draft_length": K, "beam": 2, "nodes": 5}),
    "composed": (LM, "composed", {"exit_layer": 2, "draft_length": 2}),
    "skipped": (LM, "layer-skip", {"skip_attention": (1,), "draft_length": K}),
    "two bytes": (LM, "two-byte", {"state_layer": 2}),
    "heads": (LM, "medusa", {"draft_length": K}),
    "several": (LM, "spectr", {"draft_length": K}),
}


def each_drafter_and_batch(slow):
    """Cases of one test; those that are not named to be slow are exhaustive."""
    marks = {
        which: pytest.mark.slow if which in slow else pytest.mark.exhaustive for which in DRAFTERS
    }
    cases = [pytest.param(which, 7, marks=mark) for which, mark in marks.items()]
    cases.append(pytest.param("lookup", 64, marks=pytest.mark.exhaustive))
    # Of a BLT: test_blt_drafters.py.
    return pytest.mark.parametrize(("which", "batch"), [("lookup", 2), *cases])


@dataclasses.dataclass(frozen=True)
class Rows:
    """A batch that is asked for: ids [B, BUFFER], the others [B]."""

    ids: np.ndarray
    length: np.ndarray
    budget: np.ndarray
    seed: np.ndarray

    @classmethod
    def at_random(cls, batch, seed):
        """Ragged prompts with anything behind them, and budgets from none to `MOST`."""
        rng = np.random.default_rng(seed)
        ids = rng.integers(vocab.EOS, 12, (batch, BUFFER), np.int32)
        length = rng.integers(1, LONGEST + 1, batch).astype(np.int32)
        there = np.arange(BUFFER) < length[:, None]
        ids[there & (ids < vocab.OFFSET)] = vocab.OFFSET
        ids[:, 0] = vocab.BOS
        budget = rng.integers(0, MOST + 1, batch).astype(np.int32)
        return cls(ids, length, budget, rng.integers(0, 1 << 31, batch).astype(np.uint32))

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


@functools.cache
def method(which, batch, temperature):
    config, name, options = DRAFTERS[which]
    law = Sampling.of(batch, temperature=temperature)
    model = models.model(config)
    if name in ("draft-model", "spectr"):
        flatter = jax.tree.map(lambda x: 0.9 * x, model.params)  # often right, not always
        options = options | {"draft_model": Model(model.module, flatter)}
    if isinstance(name, lookup.LookupDrafter):
        name = method_module.Method(model.target(), name)
    made, own = methods.build(name, model, **options)
    return law, made, Params(model.params, own)


def run(which, rows, *, temperature=0.8, stops=STOPS):
    """What becomes of the rows, on the host."""
    law, made, params = method(which, len(rows.length), temperature)
    decoding = loops.decode(
        params,
        Text(jnp.asarray(rows.ids), jnp.asarray(rows.length)),
        jnp.asarray(rows.budget),
        jnp.asarray(rows.seed),
        law,
        Stops.of(stops),
        method=made,
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


@each_drafter_and_batch(
    slow={
        "past, refreshed", "block, verified", "tree of the draft layer", "several",
    }
)  # fmt: skip
def test_a_row_is_the_same_in_any_company(which, batch):
    rows = Rows.at_random(batch, seed=0)
    first = run(which, rows)
    order = np.roll(np.arange(batch), 1)
    moved = run(which, rows[order])
    for there, row in enumerate(order):
        assert_same_row(first, row, moved, there)
    row = int(first.counts.rounds.argmax())
    assert first.counts.rounds[row] >= 2
    others = Rows.at_random(batch, seed=2)
    idle = dataclasses.replace(others, budget=np.zeros_like(others.budget))
    for company in (others, idle):
        assert_same_row(first, row, run(which, rows.beside(company, row)), row)


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
@each_drafter_and_batch(slow={"block, kept", "tree of heads"})
def test_rows_end_inside_a_draft(which, batch):
    """The output is the beginning of what would have come, and the statistics are its own."""
    reasons, inside = set(), 0
    for seed in range(max(1, 96 // batch)):
        rows = Rows.at_random(batch, seed)
        endless = dataclasses.replace(rows, budget=np.full_like(rows.budget, MOST))
        free, cut = run(which, endless, stops=NEVER), run(which, rows)
        drafted = cut.origins.kind == Origin.DRAFTED
        for row in np.flatnonzero(rows.budget):
            whole = emitted(free, row)
            count, reason = ending(whole, rows.budget[row])
            assert emitted(cut, row) == whole[:count]
            assert cut.ended[row] == reason
            check_counts(cut.counts, row, count, int(drafted[row].sum()))
            reasons.add(reason)
            # A round that is not cut ends with a byte of the target's own, or with a whole block.
            last = drafted[row, cut.text.length[row] - 1]
            inside += last and (which != "block, kept" or count % K > 0)
        for row in np.flatnonzero(rows.budget == 0):
            assert emitted(cut, row) == [] and cut.ended[row] == stopping.BY_LENGTH
            check_counts(cut.counts, row, 0, 0)
    assert reasons == {stopping.BY_EOS, stopping.BY_STOP, stopping.BY_LENGTH}
    assert inside


@pytest.fixture
def retraced():
    """What is compiled knows nothing of a fault, and nothing may remember it."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def keys_by_row(row_keys):
    def faulty(seeds, position, purpose):
        return row_keys(seeds + jnp.arange(len(seeds), dtype=jnp.uint32), position, purpose)

    return faulty


def matches_in_padding(matches):
    def faulty(text, longest):
        behind = jnp.arange(text.ids.shape[1]) == text.length[:, None]
        return jnp.where(behind, longest, matches(text, longest))

    return faulty


def trim_without_stops(trim):
    def faulty(text, emitted, count, *, stops, **limits):
        return trim(text, emitted, count, stops=Stops.of([]), **limits)

    return faulty


def trim_nothing(trim):
    def faulty(text, emitted, count, **limits):
        _, ended = trim(text, emitted, count, **limits)
        return count, ended

    return faulty


def count_all_judged(count_round):
    def faulty(counts, draft, count, accepted):
        judged = jnp.where(count > 0, jnp.maximum(count, accepted), 0)
        counted = count_round(counts, draft, judged, accepted)
        return dataclasses.replace(counted, bytes=counts.bytes + count)

    return faulty


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("test", "which", "module", "name", "fault"),
    [
        (test_a_row_is_the_same_in_any_company, "lookup", sampling, "row_keys", keys_by_row),
        (test_a_row_is_the_same_in_any_company, "lookup", lookup, "matches", matches_in_padding),
        (test_rows_end_inside_a_draft, "draft model", stopping, "trim", trim_without_stops),
        (test_rows_end_inside_a_draft, "draft model", stopping, "trim", trim_nothing),
        (
            test_rows_end_inside_a_draft,
            "draft model",
            method_module,
            "count_round",
            count_all_judged,
        ),
    ],
)
def test_faults_are_found(monkeypatch, retraced, test, which, module, name, fault):
    monkeypatch.setattr(module, name, fault(getattr(module, name)))
    with pytest.raises(AssertionError):
        test(which, 2)


def check_counts(counts, row, emitted, accepted):
    """Of the bytes that stand, not of those that were judged."""
    assert counts.bytes[row] == emitted
    assert counts.accepted[row] == counts.accepted_by_position[row].sum() == accepted
    assert counts.drafted[row] == counts.drafted_by_position[row].sum() <= K * counts.rounds[row]
    assert (counts.accepted_by_position[row] <= counts.drafted_by_position[row]).all()
    assert accepted <= emitted <= accepted + counts.rounds[row]
    # Every place is reached once a round at most, and the first ones first.
    assert (np.diff(counts.accepted_by_position[row]) <= 0).all()
