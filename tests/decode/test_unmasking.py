"""Which cells a pass fills, against the rules in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.decode.unmasking import ONE_STEP, confidence, entropy_bound, fill_in

SIZE, CELLS = 5, 6
run = jax.jit(fill_in, static_argnums=0)


def laws(seed, sharpness):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, sharpness, (3, CELLS, SIZE))
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    masked = rng.random((3, CELLS)) < 0.7
    return probs, masked


def filled(rule, probs, masked):
    with np.errstate(divide="ignore"):
        logits = jnp.asarray(np.log(probs), jnp.float32)
    return np.asarray(run(rule, logits, jnp.zeros(masked.shape, int), jnp.asarray(masked)).chosen)


def entropy(law):
    law = law[law > 0]
    return float(-(law * np.log(law)).sum())


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([0.5, 2.0, 5.0]), st.sampled_from([0.0, 0.4, 0.9]))
def test_confidence(seed, sharpness, alpha):
    probs, masked = laws(seed, sharpness)
    got = filled(confidence(alpha), probs, masked)
    for row in range(3):
        cells = np.flatnonzero(masked[row])
        sure = probs[row].max(-1)
        wanted = [c for c in cells if sure[c] > alpha]
        if not wanted and len(cells):
            wanted = [max(cells, key=lambda c: sure[c])]
        assert np.flatnonzero(got[row]).tolist() == wanted


@settings(max_examples=60)
@given(
    st.integers(0, 10**6),
    st.sampled_from([0.5, 2.0, 5.0]),
    st.sampled_from([0.0, 0.7, 3.0]),
    st.booleans(),
)
def test_entropy_bound(seed, sharpness, gamma, but_one):
    probs, masked = laws(seed, sharpness)
    got = filled(entropy_bound(gamma, but_one), probs, masked)
    for row in range(3):
        cells = sorted(np.flatnonzero(masked[row]), key=lambda c: entropy(probs[row, c]))
        wanted = []
        for count in range(1, len(cells) + 1):
            each = [entropy(probs[row, c]) for c in cells[:count]]
            total = sum(each) - (max(each) if but_one else 0)
            if total <= gamma or count == 1:
                wanted = cells[:count]
        assert sorted(np.flatnonzero(got[row])) == sorted(wanted)


def test_one_step_fills_all_and_only_what_is_masked():
    probs, masked = laws(0, 1.0)
    np.testing.assert_array_equal(filled(ONE_STEP, probs, masked), masked)


@pytest.mark.parametrize("rule", [confidence(0.0), entropy_bound(9.0), ONE_STEP])
def test_nothing_masked_nothing_filled_and_banned_ids_do_not_count(rule):
    probs, _ = laws(1, 1.0)
    probs[..., 0] = 0
    assert not filled(rule, probs, np.zeros((3, CELLS), bool)).any()
    assert filled(rule, probs, np.ones((3, CELLS), bool)).any(1).all()


@pytest.mark.parametrize(
    ("rule", "bound"),
    [(confidence, 1.0), (confidence, -0.1), (entropy_bound, -1.0), (entropy_bound, np.nan)],
)
def test_bounds_out_of_range_are_refused(rule, bound):
    with pytest.raises(ValueError, match=f"got {bound}"):
        rule(bound)


@pytest.mark.parametrize("rule", [confidence(0.4), entropy_bound(0.7), ONE_STEP])
def test_rules_are_functions_of_laws_and_masks(rule):
    probs, masked = laws(2, 2.0)
    with np.errstate(divide="ignore"):
        log_probs = jnp.asarray(np.log(probs), jnp.float32)
    np.testing.assert_array_equal(rule(log_probs, jnp.asarray(masked)), filled(rule, probs, masked))


def leftmost(log_probs, masked):
    return jnp.arange(masked.shape[1]) == masked.argmax(1)[:, None]


def nothing(log_probs, masked):
    return jnp.zeros_like(masked)


def test_a_rule_of_ones_own():
    """What is not masked stays, and a row of which nothing is chosen has its surest cell filled."""
    probs, masked = laws(3, 1.0)
    got = filled(leftmost, probs, masked)
    np.testing.assert_array_equal(got.sum(1), masked.any(1))
    assert (got.argmax(1) == masked.argmax(1))[masked.any(1)].all()
    surest = np.where(masked, probs.max(-1), -1).argmax(1)
    got = filled(nothing, probs, masked)
    assert (got.argmax(1) == surest)[masked.any(1)].all() and (got.sum(1) == masked.any(1)).all()


@pytest.mark.parametrize(
    "rule",
    [
        lambda log_probs, masked: masked[:, 0],
        lambda log_probs, masked: masked * 1.0,
        lambda log_probs, masked: masked.astype(int),
        lambda log_probs, masked: log_probs > 0,
    ],
)
def test_a_rule_of_ones_own_returns_a_mask(rule):
    probs, masked = laws(3, 1.0)
    with pytest.raises(ValueError, match=r"an unmasking rule returns bool\[3, 6\]"):
        filled(rule, probs, masked)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("rule", [confidence(), entropy_bound(), ONE_STEP, nothing])
def test_blocks_are_filled_whatever_the_logits(rule, value):
    """Else the loop of passes would have no end."""
    masked = jnp.ones((2, CELLS), bool)
    logits = jnp.full((2, CELLS, 9), value).at[..., :4].set(-jnp.inf)
    got = run(rule, logits, jnp.full((2, CELLS), vocab.MASK), masked)
    assert got.chosen.any(1).all() and (got.ids[got.chosen] != vocab.MASK).all()
