"""Logits to laws, laws to ids, seeds to random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.decode import Sampling, process_logits, sample, sampling

BATCH = 4
process = jax.jit(process_logits)
draw = jax.jit(sample)


def reference(logits, temperature, top_k, top_p, allow_eos):
    """Probabilities by the definition, in float64; ties go to the lower id."""
    allowed = [i for i in range(vocab.SIZE) if i >= 4 or (i == vocab.EOS and allow_eos)]
    order = sorted(allowed, key=lambda i: (-logits[i], i))
    if temperature == 0:
        return np.eye(vocab.SIZE)[order[0]]
    order = order[: top_k or None]
    weights = np.exp(np.float64(logits[order] - logits[order[0]]) / temperature)
    share = weights / weights.sum()
    before = np.cumsum(share) - share
    kept = (before < top_p) | (top_p == 1)
    kept[0] = True
    out = np.zeros(vocab.SIZE)
    out[np.array(order)[kept]] = weights[kept] / weights[kept].sum()
    return out


@pytest.mark.parametrize("allow_eos", [False, True])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0, 0, 1), (1, 0, 1), (0.6, 0, 1), (1, 1, 1), (1.3, 7, 1), (1, 0, 0.9), (0.8, 20, 0.7),
     (1, 0, 1e-6), (1, 300, 0.999)],
)  # fmt: skip
def test_law_by_definition(temperature, top_k, top_p, allow_eos):
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (BATCH, 3, vocab.SIZE)).astype(np.float32)
    logits[0] = np.round(logits[0])  # ties everywhere
    logits[1, :, : vocab.OFFSET] += 20  # the specials are what the model wants most
    beyond = ((0, 0), (0, 0), (0, 60))  # models may round their vocabulary up
    logits = np.pad(logits, beyond, constant_values=50)
    law = Sampling.of(BATCH, temperature=temperature, top_k=top_k, top_p=top_p, allow_eos=allow_eos)
    got = np.exp(np.asarray(process(logits, law), np.float64))
    for row in range(BATCH):
        for place in range(3):
            expected = reference(logits[row, place], temperature, top_k, top_p, allow_eos)
            expected = np.pad(expected, (0, 60))
            np.testing.assert_allclose(got[row, place], expected, atol=1e-6)
            np.testing.assert_array_equal(got[row, place] > 0, expected > 0)


def test_rows_have_laws_of_their_own():
    """Greedy ones too: their law is one-hot, to the last bit."""
    logits = np.random.default_rng(1).normal(0, 2, (4, 1, vocab.SIZE)).astype(np.float32)
    rules = [(1.0, 0, 1.0), (0.5, 3, 1.0), (0.0, 3, 0.4), (2.0, 0, 0.4)]
    temperature, top_k, top_p = map(list, zip(*rules, strict=True))
    law = Sampling.of(4, temperature=temperature, top_k=np.array(top_k), top_p=tuple(top_p))
    assert not law.greedy and law.truncated
    got = np.exp(np.asarray(process(logits, law)))
    for row, rule in enumerate(rules):
        np.testing.assert_allclose(got[row, 0], reference(logits[row, 0], *rule, True), atol=1e-6)
    greedy = Sampling.of(4, temperature=[0, 0, 0, 0])
    assert greedy.greedy
    np.testing.assert_array_equal(got[2], np.exp(process(logits, greedy))[2])


def test_no_truncation_keeps_the_unlikeliest():
    """A row with top_p = 1 among truncated ones: rounding of the sums drops nothing."""
    logits = np.linspace(0, 60, vocab.SIZE, dtype=np.float32)[None, None]
    law = Sampling(
        *(jnp.array([x]) for x in (1.0, 0, 1.0)), greedy=False, truncated=True, allow_eos=True
    )
    assert np.isfinite(np.asarray(process(logits, law))[0, 0, vocab.OFFSET :]).all()


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"temperature": float("inf")}, {"temperature": float("nan")},
     {"temperature": 1e39}, {"temperature": 1e-30}, {"temperature": [1.0, 2.0]},
     {"temperature": [1.0, -2.0, 0.0]}, {"temperature": np.ones((3, 1))},
     {"top_k": -1}, {"top_k": 1.5}, {"top_k": [1, 2, -1]},
     {"top_p": 0}, {"top_p": 1.1}, {"top_p": float("nan")}, {"top_p": [1, 0.5, 0]}],
)  # fmt: skip
def test_numbers_out_of_range(options):
    with pytest.raises(ValueError, match=next(iter(options))) as refused:
        Sampling.of(3, **options)
    assert "\n" not in str(refused.value)


def test_inverse_of_the_distribution():
    """Each id gets the stretch of [0, 1) that is its share: exact with dyadic shares."""
    probs = np.array([0, 0.25, 0, 0.5, 0.125, 0, 0.125, 0])
    fine = np.arange(64) / 64
    for u in (fine, fine + 1 / 128, np.nextafter(fine + 1 / 64, 0, dtype=np.float32)):
        law = jnp.broadcast_to(jnp.log(probs), (64, 8))
        got = draw(law, jnp.asarray(u, jnp.float32))
        expected = np.searchsorted(np.cumsum(probs), u, side="right")
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_laws_in_half_precision_are_drawn_from_as_they_are(dtype):
    """Sums of 260 shares are beyond what their type can hold."""
    logits = np.random.default_rng(0).normal(0, 1, vocab.SIZE).astype(np.float32)
    law = jax.nn.log_softmax(logits).astype(dtype)
    uniforms = (np.arange(4096, dtype=np.float32) + 0.5) / 4096
    got = draw(jnp.broadcast_to(law, (4096, vocab.SIZE)), uniforms)
    share = np.exp(np.asarray(law, np.float64))
    drawn = np.bincount(got, minlength=vocab.SIZE) / 4096
    np.testing.assert_allclose(drawn, share / share.sum(), rtol=0, atol=1 / 4096)


@settings(max_examples=40)
@given(st.sampled_from([1, 3, 30, 260]), st.integers(0, 2**32 - 1))
def test_never_an_id_without_probability(possible, seed):
    """At both ends of [0, 1), at random, and at every step of the distribution function."""
    rng, weights = np.random.default_rng(seed), np.zeros(260, np.float32)
    weights[:possible] = rng.choice([1e-30, 1e-7, 0.1, 1.0, 3.0], possible)
    rng.shuffle(weights)
    log_probs = jax.nn.log_softmax(jnp.log(weights))
    steps = np.asarray(jnp.cumsum(jnp.exp(log_probs)))
    steps = np.clip(steps / steps[-1], 0, 1 - 2**-24).astype(np.float32)
    ends = [0.0, np.finfo(np.float32).tiny, 2**-24, 1 - 2**-24, 0.5]
    extra = rng.random(251)
    u = np.concatenate([steps, np.nextafter(steps, np.float32(0)), ends, extra]).astype(np.float32)
    u = np.minimum(u, np.float32(1 - 2**-24))
    got = np.asarray(draw(jnp.broadcast_to(log_probs, (len(u), 260)), jnp.asarray(u)))
    assert (weights[got] > 0).all()


def test_uniforms_stay_below_one():
    keys = sampling.row_keys(
        jnp.arange(64, dtype=jnp.uint32), jnp.zeros(64, jnp.int32), sampling.ACCEPT
    )
    u = np.asarray(sampling.row_uniforms(keys, 512))
    assert (u >= 0).all() and (u < 1).all()
    assert abs(u.mean() - 0.5) < 0.01 and len(np.unique(u)) > 0.99 * u.size


@jax.jit
def keys_of(seeds, position):
    """Of each purpose, as numbers."""
    purposes = (sampling.DRAFT, sampling.ACCEPT, sampling.RESIDUAL)
    return [jax.random.key_data(sampling.row_keys(seeds, position, one)) for one in purposes]


def test_keys_belong_to_requests_not_to_rows():
    rng = np.random.default_rng(2)
    seeds = rng.integers(0, 2**32, 16).astype(np.uint32)
    position = rng.integers(1, 1000, 16).astype(np.int32)
    order = rng.permutation(16)
    every = (keys_of(seeds, position), keys_of(seeds[order], position[order]))
    for keys, mixed, one in zip(*every, keys_of(seeds[:1], position[:1]), strict=True):
        np.testing.assert_array_equal(mixed, np.asarray(keys)[order])
        np.testing.assert_array_equal(one[0], keys[0])


def test_keys_are_all_different():
    """By seed, by position, by purpose: neighbours too."""
    seeds, positions = np.meshgrid([0, 1, 2, 3, 2**32 - 1], np.arange(1, 40))
    keys = keys_of(seeds.ravel().astype(np.uint32), positions.ravel().astype(np.int32))
    assert len(np.unique(np.concatenate(keys), axis=0)) == 3 * seeds.size
