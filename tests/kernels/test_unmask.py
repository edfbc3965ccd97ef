"""The kernels of `unmask`, simulated, against the reference, which `tests/decode` checks."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.unmask import Rule, unmask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interpreting import on

BATCH, CELLS, SIZE, MASK = 2, 6, 260, 999
PLATFORMS = ["tpu", "gpu"]
RULES = [
    Rule("confidence", 0.3),
    Rule("entropy", 2.5),
    Rule("entropy-but-one", 2.0),
    Rule("all"),
]
run = jax.jit(unmask, static_argnames=("rule", "implementation"))


def inputs(seed):
    """Cells of all degrees of doubt, ids that are never emitted, most cells still masked."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(BATCH, CELLS, SIZE)) * rng.choice([1, 3, 6], (BATCH, CELLS, 1))
    logits[..., :3] = -np.inf
    masked = rng.random((BATCH, CELLS)) < 0.7
    masked[1, -1] = True
    ids = np.where(masked, MASK, 7).astype(np.int32)
    return jnp.asarray(logits, jnp.float32), jnp.asarray(ids), jnp.asarray(masked)


def drawing(seed, logits):
    rng = np.random.default_rng(seed)
    temperature = rng.choice([0.5, 1.5], (BATCH, 1, 1))
    uniforms = jnp.asarray(rng.random((BATCH, CELLS)), jnp.float32)
    return {"law": jax.nn.log_softmax(logits / temperature), "uniforms": uniforms}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("rule, warm", [(RULES[0], True), (RULES[1], False), (RULES[2], False)])
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_kernels(platform, rule, warm, seed):
    compare(platform, rule, warm, seed)


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("warm", [True, False])
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_kernels_more(platform, rule, warm, seed):
    compare(platform, rule, warm, seed)


@pytest.mark.parametrize("warm", [True, False])
def test_a_cpu_runs_the_reference(warm):
    logits, ids, masked = inputs(5)
    how = drawing(5, logits) if warm else {}
    by_default = run(logits, ids, masked, rule=RULES[1], **how)
    wanted = run(logits, ids, masked, rule=RULES[1], implementation="reference", **how)
    jax.tree.map(np.testing.assert_array_equal, by_default, wanted)


def compare(platform, rule, warm, seed):
    logits, ids, masked = inputs(seed)
    how = drawing(seed, logits) if warm else {}
    with on(platform):
        made = run(logits, ids, masked, rule=rule, implementation=platform, **how)
        jax.block_until_ready(made)
    wanted = run(logits, ids, masked, rule=rule, implementation="reference", **how)
    for name in ("ids", "chosen", "drawn"):
        np.testing.assert_array_equal(getattr(made, name), getattr(wanted, name), name)
    np.testing.assert_allclose(made.confidence, wanted.confidence, rtol=1e-5)
    assert np.asarray(made.chosen)[1].any()


@pytest.mark.parametrize("platform", [*PLATFORMS, "reference"])
def test_equals_and_ends(platform):
    """Equal cells from left to right; ids of probability 0 on both sides are never drawn."""
    logits = jnp.full((BATCH, CELLS, SIZE), -jnp.inf).at[..., 5:9].set(0.0)
    ids = jnp.full((BATCH, CELLS), MASK)
    masked = jnp.ones((BATCH, CELLS), bool).at[0, 0].set(False)
    uniforms = jnp.tile(jnp.asarray([0, 0.2, 0.4, 0.6, 1 - 2**-24, 0.1]), (BATCH, 1))
    two = Rule("entropy", 2 * float(np.log(4)) + 1e-4)
    how = {"law": jax.nn.log_softmax(logits), "uniforms": uniforms}
    with on(platform) if platform in PLATFORMS else contextlib.nullcontext():
        made = run(logits, ids, masked, rule=two, implementation=platform, **how)
        jax.block_until_ready(made)
    assert np.flatnonzero(made.chosen[0]).tolist() == [1, 2]
    assert np.flatnonzero(made.chosen[1]).tolist() == [0, 1]
    assert np.asarray(made.drawn).tolist() == [[5, 5, 6, 7, 8, 5]] * BATCH


def test_inference_only():
    logits, *rest = inputs(0)
    arguments = {"rule": Rule("confidence", 0.5), "implementation": "tpu"}
    with pytest.raises(NotImplementedError, match="for inference"), on("tpu"):
        jax.grad(lambda logits: unmask(logits, *rest, **arguments).confidence.sum())(logits)
