"""`unmask`: the reference against the library's rules and laws, the kernels against it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.unmask import Rule, unmask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpreting import on

from bytelax.decode import sampling
from bytelax.decode.sampling import Sampling
from bytelax.decode.unmasking import Confidence, EntropyBound, OneStep

BATCH, CELLS, SIZE, MASK = 2, 6, 260, 999
RULES = [
    (Rule("confidence", 0.3), Confidence(0.3)),
    (Rule("entropy", 2.5), EntropyBound(2.5)),
    (Rule("entropy-but-one", 2.0), EntropyBound(2.0, "sum-minus-max")),
    (Rule("all"), OneStep()),
]
run = jax.jit(unmask, static_argnames=("rule", "implementation"))


def inputs(seed, size=SIZE):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(BATCH, CELLS, size)) * rng.choice([1, 3, 6], (BATCH, CELLS, 1))
    logits[..., :3] = -np.inf
    masked = rng.random((BATCH, CELLS)) < 0.7
    masked[1, -1] = True
    ids = np.where(masked, MASK, 7)
    uniforms = rng.random((BATCH, CELLS))
    arrays = (logits, ids, masked, uniforms)
    return [jnp.asarray(x, x.dtype.name.replace("64", "32")) for x in arrays]


@pytest.mark.parametrize("rule, unmasking", RULES)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_reference_is_what_the_drafter_does(rule, unmasking, temperature):
    """Bit by bit."""
    law = Sampling.of(BATCH, temperature=temperature)
    for seed in range(5):
        logits, ids, masked, uniforms = inputs(seed)
        banned = jnp.where(jnp.isfinite(sampling.byte_law(logits, law)), logits, -jnp.inf)
        made = run(
            banned,
            ids,
            masked,
            uniforms,
            rule=rule,
            temperature=law.temperature if temperature else None,
        )
        here = sampling.process_logits(logits, law)
        drawn = sampling.draw(here, law, uniforms)
        chosen = unmasking(sampling.byte_law(logits, law), masked)
        np.testing.assert_array_equal(made.chosen, chosen)
        np.testing.assert_array_equal(made.drawn, drawn)
        np.testing.assert_array_equal(made.ids, np.where(chosen, drawn, ids))
        np.testing.assert_array_equal(made.confidence, sampling.probability(logits, law, drawn))
        if temperature:
            np.testing.assert_array_equal(made.log_probs, here)


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
@pytest.mark.parametrize(
    "rule, heat", [(RULES[0][0], False), (RULES[1][0], True), (RULES[2][0], False)]
)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_kernels(platform, rule, heat, seed):
    arrays = inputs(seed)
    temperature = jnp.asarray([0.6, 1.3], jnp.float32) if heat else None
    call = functools.partial(run, *arrays, rule=rule, temperature=temperature)
    with on(platform):
        made = jax.block_until_ready(call(implementation=platform))
    wanted = call(implementation="reference")
    np.testing.assert_array_equal(made.chosen, wanted.chosen)
    np.testing.assert_array_equal(made.drawn, wanted.drawn)
    np.testing.assert_array_equal(made.ids, wanted.ids)
    np.testing.assert_allclose(made.confidence, wanted.confidence, rtol=1e-5)
    assert (made.log_probs is None) == (wanted.log_probs is None)
    if heat:
        np.testing.assert_allclose(made.log_probs, wanted.log_probs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("platform", ["tpu", "gpu"])
def test_equals_go_from_left_to_right_and_impossible_ids_are_not_drawn(platform):
    """All cells alike, ids of probability zero around; uniforms at the ends of [0, 1)."""
    logits = jnp.full((BATCH, CELLS, SIZE), -jnp.inf).at[..., 5:9].set(0.0)
    masked = jnp.ones((BATCH, CELLS), bool).at[0, 0].set(False)
    ids = jnp.full((BATCH, CELLS), MASK)
    uniforms = jnp.tile(jnp.asarray([0, 0.25, 0.5, 0.75, 1 - 2**-24, 0.1]), (BATCH, 1))
    with on(platform):
        made = run(
            logits,
            ids,
            masked,
            uniforms,
            rule=Rule("entropy", 2 * float(np.log(4)) + 1e-4),
            temperature=jnp.ones(BATCH),
            implementation=platform,
        )
    assert np.asarray(made.chosen).tolist() == [[False, *[True] * 2, *[False] * 3], [True] * 2 + [False] * 4]
    assert np.asarray(made.drawn).tolist() == [[5, 6, 7, 8, 8, 5]] * 2


def test_inference_only():
    logits, *rest = inputs(0)
    arguments = {"rule": Rule("confidence", 0.5), "implementation": "tpu"}
    with pytest.raises(NotImplementedError, match="for inference"), on("tpu"):
        jax.grad(lambda logits: unmask(logits, *rest, **arguments).confidence.sum())(logits)
