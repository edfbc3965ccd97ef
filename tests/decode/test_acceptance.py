"""Acceptance rules, enumerated: every draft, and every uniform number."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.decode import Draft, greedy, rejection
from bytelax.decode.drafters import no_passes

VOCAB = 3
judge = {"greedy": jax.jit(greedy), "rejection": jax.jit(rejection)}


def log(probs):
    with np.errstate(divide="ignore"):
        return jnp.asarray(np.log(probs), jnp.float32)


def draft_of(ids, log_probs, length=None, deterministic=False):
    ids = jnp.asarray(ids, jnp.int32)
    if length is None:
        length = np.full(len(ids), ids.shape[1])
    return Draft(
        ids,
        jnp.asarray(length, jnp.int32),
        log_probs,
        jnp.full(len(ids), deterministic),
        jnp.zeros(ids.shape, jnp.int32),
        no_passes(len(ids)),
    )


def tree(levels, depth):
    """A law for every text of up to `depth` ids, so that the target depends on what was drafted."""
    rng = np.random.default_rng(levels)
    laws = {}
    for length in range(depth + 1):
        for prefix in itertools.product(range(VOCAB), repeat=length):
            weights = rng.multinomial(levels, np.ones(VOCAB) / VOCAB)
            laws[prefix] = weights / levels
    return laws


def emitted_law(target, proposal, length, one_hot=False):
    """P(text) of the first `length + 1` ids: what a round emits, and then the target itself.

    Every draft is weighted by its own law, and all uniform numbers are integrated out.
    """
    drafts = list(itertools.product(range(VOCAB), repeat=length))
    total = dict.fromkeys(itertools.product(range(VOCAB), repeat=length + 1), 0.0)
    for ids in drafts:
        prefixes = [ids[:i] for i in range(length + 1)]
        q = [proposal[prefix] for prefix in prefixes[:-1]]
        weight = np.prod([law[x] for law, x in zip(q, ids, strict=True)])
        if weight == 0:
            continue
        if one_hot:
            q = [np.eye(VOCAB)[x] for x in ids]
        p = np.stack([target[prefix] for prefix in prefixes])
        for (out, count), share in integrate(ids, q, p).items():
            text = out[:count]
            rest = 1 + length - count
            for tail in itertools.product(range(VOCAB), repeat=rest):
                full = text + tail
                after = np.prod([target[full[:i]][full[i]] for i in range(count, length + 1)])
                total[full] += weight * share * after
    return total


def integrate(ids, q, p):
    """{(emitted ids, count): probability} over all uniform numbers.

    What is emitted changes only where one of them crosses an edge: min(1, p / q) at acceptance, the
    steps of p's or the residual's distribution function at a draw. One point a cell is exact.
    """
    length = len(ids)
    accept_edges, draw_edges = [], []
    for i, x in enumerate(ids):
        accept_edges.append(cuts([min(1, p[i][x] / q[i][x])]))
    accept_edges.append(cuts([]))
    for i in range(length + 1):
        residual = np.maximum(p[i] - q[i], 0) if i < length else p[i]
        edges = list(np.cumsum(p[i]))
        if residual.sum() > 0:
            edges += list(np.cumsum(residual / residual.sum()))
        draw_edges.append(cuts(edges))
    cells = list(itertools.product(*accept_edges[:length], *draw_edges))
    if not cells:
        return {}
    middles = np.array([[cell[0] for cell in combination] for combination in cells])
    sizes = np.array([np.prod([cell[1] for cell in combination]) for combination in cells])
    accept = np.concatenate([middles[:, :length], np.full((len(cells), 1), 0.5)], axis=1)
    uniforms = jnp.asarray(np.stack([accept, middles[:, length:]], axis=1), jnp.float32)
    many = len(cells)
    rows = 1 << (many - 1).bit_length()  # few shapes
    uniforms = jnp.pad(uniforms, ((0, rows - many), (0, 0), (0, 0)))
    laws = log(np.stack(q)) if length else jnp.zeros((0, VOCAB))
    draft = draft_of(np.tile(np.array(ids, int), (rows, 1)), jnp.tile(laws, (rows, 1, 1)))
    out, count = judge["rejection"](draft, jnp.tile(log(p), (rows, 1, 1)), uniforms)
    result = {}
    for row in range(many):
        n = int(count[row])
        key = tuple(np.asarray(out)[row, :n].tolist()), n
        result[key] = result.get(key, 0.0) + sizes[row]
    return result


def cuts(edges):
    """[(middle, size)] of the pieces between the edges."""
    edges = sorted({0.0, 1.0, *(min(max(float(e), 0.0), 1.0) for e in edges)})
    return [
        ((low + high) / 2, high - low)
        for low, high in itertools.pairwise(edges)
        if high - low > 1e-9
    ]


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2])
@pytest.mark.parametrize("levels", [8, 2])  # 2: many zeros, drafts that p forbids, p = q
def test_rejection_leaves_the_law_of_the_target(levels, length, one_hot):
    target, proposal = tree(levels, length), tree(levels + 1, length)
    law = emitted_law(target, proposal, length, one_hot)
    for text, probability in law.items():
        expected = np.prod([target[text[:i]][text[i]] for i in range(length + 1)])
        assert abs(probability - expected) < 1e-6, text


def test_a_proposal_equal_to_the_target_is_always_accepted():
    target = tree(8, 2)
    for ids in itertools.product(range(VOCAB), repeat=2):
        q = [target[ids[:i]] for i in range(2)]
        if all(law[x] > 0 for law, x in zip(q, ids, strict=True)):
            p = np.stack([target[ids[:i]] for i in range(3)])
            for (out, count), _ in integrate(ids, q, p).items():
                assert count == 3 and out[:2] == ids


def test_rejection_of_what_the_target_forbids():
    p = np.array([[0, 0.5, 0.5], [1, 0, 0]])
    for u in (0.0, 0.3, 1 - 2**-24):
        draft = draft_of([[0]], log(np.array([[[1.0, 0, 0]]])), deterministic=True)
        out, count = judge["rejection"](draft, log(p)[None], jnp.full((1, 2, 2), u))
        assert count[0] == 1 and out[0, 0] in (1, 2)


@pytest.mark.parametrize("rule", ["greedy", "rejection"])
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
    out, count = judge[rule](draft_of(ids, log(q), length), log(p), uniforms)
    other, same = judge[rule](draft_of(other_ids, log(other_q), length), log(p), uniforms)
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
        out, count = judge["rejection"](draft, log(p), jnp.asarray(one[None]))
        changed = one.copy()
        n = int(count[0])
        changed[:, n:] = rng.random((2, 4 - n))
        again, same = judge["rejection"](draft, log(p), jnp.asarray(changed[None]))
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
    out, count = judge["greedy"](draft_of(ids, q, lengths), log(p), uniforms)
    for row, (choice, draft, length) in enumerate(cases):
        matched = 0
        while matched < length and draft[matched] == choice[matched]:
            matched += 1
        assert count[row] == matched + 1
        assert tuple(np.asarray(out)[row, : matched + 1]) == choice[: matched + 1]
