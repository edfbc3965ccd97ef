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
    slow("block", 1, {"window": 4}),
    slow("k_seq", 2, {}),
    slow("k_seq", 2, {"many": 2}),
    slow("k_seq", 2, {"many": 2, "ragged": True}),
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


def test_take_all_takes_all_and_only_the_draft():
    """Where nothing is drafted it draws a byte of the target's."""
    ids, uniform = np.array([[0, 1]] * 4), np.array([0.9, 0.9, 0.2, 0.9])
    p = log(np.tile(np.array([0.25, 0, 0.75]), (4, 3, 1)))
    draft = draft_of(ids, log(np.full((4, 2, VOCAB), 1 / VOCAB)), [2, 1, 0, 0])
    uniforms = jnp.broadcast_to(jnp.asarray(uniform, jnp.float32)[:, None, None], (4, 2, 3))
    out, count, *_ = judge["take_all"](draft, p, uniforms)
    assert [out[row, : count[row]].tolist() for row in range(4)] == [[0, 1], [0], [0], [2]]


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_what_the_target_forbids(rule):
    p = np.array([[0, 0.5, 0.5], [1, 0, 0]])
    for u in (0.0, 0.3, 1 - 2**-24):
        draft = draft_of([[0]], log(np.array([[[1.0, 0, 0]]])))
        out, count, *_ = judge[rule](draft, log(p)[None], jnp.full((1, 2, 2), u))
        assert count[0] == 1 and out[0, 0] in (1, 2)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_beyond_the_draft_is_read(rule):
    """Ids and laws at or behind `length` may be anything, NaN included.

    An id that its own law would never draw ends a draft as its length does. It used to be accepted
    for certain, and ended all rows at once if it was an EOS.
    """
    rng = np.random.default_rng(0)
    many, rows, places = 3, 128, 3
    several, streams = ((many, rows), many + 1) if rule == "k_seq" else ((rows,), 2)
    p = rng.dirichlet(np.ones(VOCAB), (rows, places + 1))
    p = log(np.broadcast_to(p, (*several, places + 1, VOCAB)))
    q = rng.dirichlet(np.ones(VOCAB), (rows, places))
    q = np.broadcast_to(q, (*several, places, VOCAB))
    ids = rng.integers(0, VOCAB, (*several, places))
    length = rng.integers(0, places + 1, several)
    uniforms = jnp.asarray(rng.random((rows, streams, places + 1)), jnp.float32)
    beyond = np.arange(places) >= length[..., None]
    drafts = [
        draft_of(ids, log(q), length),
        draft_of(
            np.where(beyond, (ids + 1) % VOCAB, ids),
            log(np.where(beyond[..., None], np.nan, q)),
            length,
        ),
    ]
    if rule not in ("greedy", "typical"):  # which read no law of a draft
        never = beyond[..., None] & (np.arange(VOCAB) == ids[..., None])
        drafts.append(draft_of(ids, log(np.where(never, 0, q))))
    first, *others = (jax.tree.leaves(judge[rule](draft, p, uniforms)) for draft in drafts)
    out, count, *rest = first
    assert len({*count.tolist()}) >= places
    emitted = np.arange(places + 1) < count[:, None]
    for other, *same in others:
        np.testing.assert_array_equal(np.where(emitted, out, 0), np.where(emitted, other, 0))
        jax.tree.map(np.testing.assert_array_equal, [count, *rest], same)


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
