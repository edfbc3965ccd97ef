"""Acceptance rules, enumerated: every draft, and every uniform number."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import (
    Draft,
    Typical,
    block_verification,
    greedy,
    is_drafted,
    k_seq,
    no_passes,
    rejection,
    take_all,
    trees,
    typical,
)
from bytelax.systems import ParallelDrafter
from bytelax.testing import TableDrafter, enumerate_rule
from tests.helpers.marks import exhaustive, slow

VOCAB = 3
RULES = {
    "greedy": greedy,
    "rejection": rejection,
    "block": block_verification,
    "k_seq": k_seq,
    "typical": typical,
    "take_all": take_all,
}


def on_host(rule):
    """A rule in a program, whose results may be indexed at will."""
    run = jax.jit(rule)
    return lambda *given: jax.device_get(run(*given))


judge = {name: on_host(rule) for name, rule in RULES.items()}


def log(probs):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(probs).astype(np.float32))


def draft_of(ids, log_probs, length=None):
    ids = np.asarray(ids, np.int32)
    rows = ids.shape[:-1]
    length = np.full(rows, ids.shape[-1]) if length is None else np.asarray(length)
    passes = jax.tree.map(lambda x: np.zeros(rows, x.dtype), no_passes(rows[-1]))
    arrays = {"ids": ids, "length": length.astype(np.int32), "log_probs": log_probs}
    return Draft(**jax.tree.map(jnp.asarray, arrays | {"passes": passes}))


def laws(levels, seed):
    """The law of the next value after each two: multiples of 1 / levels.

    With few levels there are many zeros, and often p = q; with one the laws are one-hot.
    """
    rng = np.random.default_rng(seed)
    return rng.multinomial(levels, np.ones(VOCAB) / VOCAB, (VOCAB, VOCAB)) / levels


# What the target and the drafts are; both of a pair are enumerated in one go.
PAIRS = {
    "rich": (laws(8, 0), laws(9, 1)),
    "with zeros": (laws(2, 2), laws(3, 3)),
    "with more zeros": (laws(2, 4), laws(2, 5)),
    "equal": (laws(8, 6), laws(8, 6)),
    "greedy": (laws(1, 7), laws(4, 8)),
    "likeliest": (laws(5, 9), laws(1, 10)),
}


class Certain(TableDrafter):
    """The drafts are chosen as ever, but declared as chosen without chance."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        return dataclasses.replace(draft, log_probs=None), draft_state


class EndsWithWhatCannotBe(TableDrafter):
    """Ragged drafts as long as the others: a value that has no probability ends them."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        log_probs = jnp.where(is_drafted(draft)[..., None], draft.log_probs, -jnp.inf)
        length = jnp.full_like(draft.length, self.draft_length)
        return dataclasses.replace(draft, length=length, log_probs=log_probs), draft_state


@functools.cache
def emissions(rule, length, many=1, ragged=False, drafter=TableDrafter, window=None):
    """By pair: {emitted values: probability}, with drafts of `length` bytes, `many` a row."""
    drafter = drafter(length, ragged=ragged)
    if rule == "k_seq":
        drafter = ParallelDrafter(drafter, many)
    judge = drafter.judged_by if rule == "k_seq" else RULES[rule]
    p, q = (np.stack(side) for side in zip(*PAIRS.values(), strict=True))
    found = enumerate_rule(judge, p, q, drafter=drafter, window=window)
    return dict(zip(PAIRS, found, strict=True))


def completed(law, target, length):
    """The law of the next `length` values: those that were emitted, then the target's own."""
    total = dict.fromkeys(itertools.product(range(VOCAB), repeat=length), 0.0)
    for values, probability in law.items():
        for tail in itertools.product(range(VOCAB), repeat=length - len(values)):
            text = values + tail
            total[text] += probability * chain(target, text, len(values))
    return total


def chain(target, text, begin=0):
    before = (0, 0, *text)
    return np.prod([target[before[i : i + 2]][text[i]] for i in range(begin, len(text))])


def mean_length(law):
    return sum(len(values) * probability for values, probability in law.items())


CASES = [
    slow("rejection", 0, {}),
    exhaustive("rejection", 2, {"drafter": Certain}),
    ("rejection", 3, {"ragged": True}),
    exhaustive("rejection", 1, {"window": 4}),
    exhaustive("block", 0, {}),
    ("block", 1, {}),
    slow("block", 2, {"drafter": Certain}),
    exhaustive("block", 3, {}),
    ("block", 3, {"ragged": True}),
    ("block", 1, {"window": 4}),
    slow("k_seq", 2, {}),
    slow("k_seq", 2, {"many": 2}),
    slow("k_seq", 2, {"many": 2, "ragged": True}),
    slow("k_seq", 2, {"many": 2, "ragged": True, "drafter": EndsWithWhatCannotBe}),
    slow("k_seq", 1, {"many": 3}),
    exhaustive("k_seq", 1, {"many": 2, "window": 4}),
    slow("k_seq", 1, {"many": 2, "window": 5}),
]


@pytest.mark.parametrize(("rule", "length", "options"), CASES)
def test_the_law_of_the_target(rule, length, options):
    for pair, law in emissions(rule, length, **options).items():
        target, _ = PAIRS[pair]
        for text, probability in completed(law, target, max(map(len, law))).items():
            assert abs(probability - chain(target, text)) < 1e-6, (pair, text)


@pytest.mark.slow
def test_several_drafts_judged_as_one_are_seen(monkeypatch):
    """The same chance and residual for each candidate, as if there were no other."""
    judged = trees._rho_and_residual
    monkeypatch.setattr(
        trees, "_rho_and_residual", lambda p, q, many: judged(p, q, jnp.minimum(many, 1))
    )
    law, (target, _) = emissions.__wrapped__("k_seq", 1, many=2)["rich"], PAIRS["rich"]
    off = [abs(share - chain(target, text)) for text, share in completed(law, target, 2).items()]
    assert max(off) > 1e-3


@pytest.mark.parametrize(
    ("rule", "length", "options"),
    [("rejection", 1, {}), slow("block", 2, {}), slow("k_seq", 2, {"many": 2})],
)
def test_a_proposal_equal_to_the_target_is_always_accepted(rule, length, options):
    assert mean_length(emissions(rule, length, **options)["equal"]) > length + 1 - 1e-5


@pytest.mark.parametrize(
    ("rule", "length", "options", "least"),
    [("block", 3, {"ragged": True}, 0.01), slow("k_seq", 1, {"many": 3}, 0.1)],
)
def test_a_better_rule_accepts_no_less(rule, length, options, least):
    better = emissions(rule, length, **options)
    worse = emissions("rejection", length, **({} if rule == "k_seq" else options))
    gain = [mean_length(better[pair]) - mean_length(worse[pair]) for pair in PAIRS]
    assert min(gain) > -1e-5 and max(gain) > least


@pytest.mark.parametrize(("rule", "length"), [("block", 1), slow("k_seq", 2)])
def test_of_one_byte_or_of_one_draft_it_is_rejection(rule, length):
    one, other = emissions(rule, length), emissions("rejection", length)
    for pair in PAIRS:
        for ids in one[pair].keys() | other[pair].keys():
            assert abs(one[pair].get(ids, 0) - other[pair].get(ids, 0)) < 1e-6


def test_what_the_target_is_sure_of_is_accepted_from_any_draft():
    p = np.array([[0, 1.0, 0], [0, 0, 1]])
    q = log(np.full((3, 1, 1, VOCAB), 1 / 3))
    drafts = draft_of([[[0]], [[2]], [[1]]], q)
    uniforms = jnp.full((1, 4, 2), 1 - 2**-24)
    (ids, count, *_), followed = judge["k_seq"](drafts, jnp.tile(log(p), (3, 1, 1, 1)), uniforms)
    assert (ids.tolist(), count.tolist(), followed.tolist()) == ([[1, 2]], [2], [2])


def test_several_drafts_read_nothing_beyond_their_length():
    rng = np.random.default_rng(3)
    many, rows, places = 3, 128, 3
    p = np.broadcast_to(rng.dirichlet(np.ones(VOCAB), (rows, places + 1)), (many, rows, 4, VOCAB))
    q = np.broadcast_to(rng.dirichlet(np.ones(VOCAB), (rows, places)), (many, rows, 3, VOCAB))
    ids = rng.integers(0, VOCAB, (many, rows, places))
    length = rng.integers(0, places + 1, (many, rows))
    uniforms = jnp.asarray(rng.random((rows, many + 1, places + 1)), jnp.float32)
    beyond = np.arange(places) >= length[..., None]
    (out, count, *_), followed = judge["k_seq"](draft_of(ids, log(q), length), log(p), uniforms)
    ids, q = np.where(beyond, (ids + 1) % VOCAB, ids), np.where(beyond[..., None], np.nan, q)
    (other, same, *_), also = judge["k_seq"](draft_of(ids, log(q), length), log(p), uniforms)
    np.testing.assert_array_equal(count, same)
    np.testing.assert_array_equal(followed, also)
    assert len(set(np.asarray(count).tolist())) == places + 1
    for row in range(rows):
        np.testing.assert_array_equal(out[row, : count[row]], other[row, : count[row]])
        assert count[row] - 1 <= length[followed[row], row]


def test_typical_by_definition():
    """With p(x) against min(epsilon, delta exp(-H)), zeros of p included; then a byte of p."""
    rng = np.random.default_rng(4)
    rows, places = 256, 3
    p = rng.dirichlet(np.full(VOCAB, 0.3), (rows, places + 1))
    p[rng.random((rows, places + 1)) < 0.2] = [0.5, 0, 0.5]
    ids = rng.integers(0, VOCAB, (rows, places))
    length = rng.integers(0, places + 1, rows)
    uniforms = rng.random((rows, 2, places + 1))
    rule = Typical(epsilon=0.2, delta=0.6)
    draft = draft_of(ids, log(np.full((rows, places, VOCAB), np.nan)), length)
    out, count, *_ = on_host(rule)(draft, log(p), uniforms.astype(np.float32))
    for row in range(rows):
        n = 0
        while n < length[row]:
            law = p[row, n]
            entropy = -sum(x * np.log(x) for x in law if x > 0)
            if law[ids[row, n]] <= min(0.2, 0.6 * np.exp(-entropy)):
                break
            n += 1
        following = np.searchsorted(np.cumsum(p[row, n]), uniforms[row, 1, n], side="right")
        assert count[row] == n + 1
        assert out[row, : n + 1].tolist() == [*ids[row, :n], following]


def test_typical_is_a_static_argument():
    assert Typical() == typical and hash(Typical()) == hash(typical)
    assert Typical(epsilon=0.5) != typical


def test_take_all_takes_all_and_only_the_draft():
    ids = np.array([[0, 1], [0, 1], [0, 1]])
    p = log(np.tile(np.array([0, 0, 1.0]), (3, 3, 1)))
    draft = draft_of(ids, log(np.full((3, 2, VOCAB), 1 / VOCAB)), [2, 1, 0])
    out, count, *_ = judge["take_all"](draft, p, jnp.zeros((3, 2, 3)))
    assert count.tolist() == [2, 1, 1]
    emitted = [out[row, : count[row]].tolist() for row in range(3)]
    assert emitted == [[0, 1], [0], [2]]  # nothing drafted: a byte of the target's


def test_take_all_draws_from_the_target_where_nothing_is_drafted():
    for pair, law in emissions("take_all", 0).items():
        target, _ = PAIRS[pair]
        for x in range(VOCAB):
            assert abs(law.get((x,), 0.0) - target[0, 0][x]) < 1e-6


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_what_the_target_forbids(rule):
    p = np.array([[0, 0.5, 0.5], [1, 0, 0]])
    for u in (0.0, 0.3, 1 - 2**-24):
        draft = draft_of([[0]], log(np.array([[[1.0, 0, 0]]])))
        out, count, *_ = judge[rule](draft, log(p)[None], jnp.full((1, 2, 2), u))
        assert count[0] == 1 and out[0, 0] in (1, 2)


@pytest.mark.parametrize("rule", ["greedy", "rejection", "block", "typical", "take_all"])
def test_nothing_beyond_the_draft_is_read(rule):
    """Ids and laws at or behind `length` may be anything, NaN included."""
    rng = np.random.default_rng(0)
    rows, places = 64, 4
    p = rng.dirichlet(np.ones(VOCAB), (rows, places + 1))
    q = rng.dirichlet(np.ones(VOCAB), (rows, places))
    ids = rng.integers(0, VOCAB, (rows, places))
    length = rng.integers(0, places + 1, rows)
    uniforms = jnp.asarray(rng.random((rows, 2, places + 1)), jnp.float32)
    beyond = np.arange(places) >= length[:, None]
    other_q = np.where(beyond[..., None], np.nan, q)
    other_ids = np.where(beyond, (ids + 1) % VOCAB, ids)
    out, count, *_ = judge[rule](draft_of(ids, log(q), length), log(p), uniforms)
    other, same, *_ = judge[rule](draft_of(other_ids, log(other_q), length), log(p), uniforms)
    np.testing.assert_array_equal(count, same)
    assert (np.asarray(count) <= length + 1).all() and (np.asarray(count) >= 1).all()
    for row in range(rows):
        np.testing.assert_array_equal(out[row, : count[row]], other[row, : count[row]])


def test_rejection_does_not_depend_on_the_uniforms_of_later_places():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(VOCAB), (1, 4)), rng.dirichlet(np.ones(VOCAB), (1, 3))
    draft = draft_of([[0, 1, 2]], log(q))
    uniforms = rng.random((256, 2, 4)).astype(np.float32)
    for one in uniforms:
        out, count, *_ = judge["rejection"](draft, log(p), jnp.asarray(one[None]))
        changed = one.copy()
        n = int(count[0])
        changed[:, n:] = rng.random((2, 4 - n))
        again, same, *_ = judge["rejection"](draft, log(p), jnp.asarray(changed[None]))
        assert same[0] == n
        np.testing.assert_array_equal(out[0, :n], again[0, :n])


def test_greedy_is_the_longest_prefix():
    """Every draft of every length against every sequence of choices; the uniforms do not matter."""
    cases = [
        (choice, ids, length)
        for choice in itertools.product(range(VOCAB), repeat=3)
        for ids in itertools.product(range(VOCAB), repeat=2)
        for length in range(3)
    ]
    choices, ids, lengths = (np.array(part) for part in zip(*cases, strict=True))
    rng = np.random.default_rng(0)
    p = 0.1 + 0.7 * np.eye(VOCAB)[choices]
    uniforms = jnp.asarray(rng.random((len(cases), 2, 3)), jnp.float32)
    q = jnp.zeros((len(cases), 2, VOCAB))
    out, count, *_ = judge["greedy"](draft_of(ids, q, lengths), log(p), uniforms)
    for row, (choice, draft, length) in enumerate(cases):
        matched = 0
        while matched < length and draft[matched] == choice[matched]:
            matched += 1
        assert count[row] == matched + 1
        assert tuple(np.asarray(out)[row, : matched + 1]) == choice[: matched + 1]
