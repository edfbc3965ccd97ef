"""The kernels of `unmask`, simulated, against the reference, which `tests/decode` checks."""

import contextlib
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.unmask import Rule, unmask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.interpreting import on
from tests.helpers.marks import slow

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


def drawn_ids(seed, warm):
    """At temperature 0 the likeliest."""
    ids = np.random.default_rng(seed).integers(3, SIZE, (BATCH, CELLS), np.int32)
    return jnp.asarray(ids) if warm else None


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("rule, warm", [(RULES[0], True), slow(RULES[1], False), (RULES[2], False)])
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_kernels(platform, rule, warm, seed):
    compare(platform, rule, warm, seed)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    ("rule", "warm"), list(zip(RULES, itertools.cycle([True, False]), strict=False))
)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20))
def test_kernels_more(platform, rule, warm, seed):
    compare(platform, rule, warm, seed)


@pytest.mark.parametrize("warm", [True, False])
def test_a_cpu_runs_the_reference(warm):
    logits, ids, masked = inputs(5)
    rule, drawn = RULES[1], drawn_ids(5, warm)
    by_default = run(logits, ids, masked, rule=rule, drawn=drawn)
    wanted = run(logits, ids, masked, rule=rule, drawn=drawn, implementation="xla")
    jax.tree.map(np.testing.assert_array_equal, by_default, wanted)


def compare(platform, rule, warm, seed):
    logits, ids, masked = inputs(seed)
    how = {"rule": rule, "drawn": drawn_ids(seed, warm)}
    with on(platform):
        made = run(logits, ids, masked, implementation=platform, **how)
        jax.block_until_ready(made)
    wanted = run(logits, ids, masked, implementation="xla", **how)
    for name in ("ids", "chosen", "drawn"):
        np.testing.assert_array_equal(getattr(made, name), getattr(wanted, name), name)
    assert np.asarray(made.chosen)[1].any()


@pytest.mark.parametrize("platform", [*PLATFORMS, "xla"])
@pytest.mark.parametrize(
    "rule, cells",
    [
        (Rule("confidence", 0.25), [0]),  # none above it: the first of the surest
        (Rule("entropy", 2 * float(np.log(4)) + 1e-4), [0, 1]),
        (Rule("entropy-but-one", 2 * float(np.log(4)) + 1e-4), [0, 1, 2]),
    ],
)
def test_equals(platform, rule, cells):
    """Equal cells from left to right, the lowest of equal ids."""
    logits = jnp.full((BATCH, CELLS, SIZE), -jnp.inf).at[..., 5:9].set(0.0)
    ids = jnp.full((BATCH, CELLS), MASK)
    masked = jnp.ones((BATCH, CELLS), bool).at[0, 0].set(False)
    with on(platform) if platform in PLATFORMS else contextlib.nullcontext():
        made = run(logits, ids, masked, rule=rule, implementation=platform)
        jax.block_until_ready(made)
    assert np.flatnonzero(made.chosen[0]).tolist() == [cell + 1 for cell in cells]
    assert np.flatnonzero(made.chosen[1]).tolist() == cells
    assert (np.asarray(made.drawn) == 5).all()


@pytest.mark.parametrize("platform", [*PLATFORMS, "xla"])
def test_a_sum_at_the_bound_is_within_it(platform):
    """Cells without any doubt add nothing: a bound of 0 takes them all."""
    logits = jnp.full((BATCH, CELLS, SIZE), -jnp.inf).at[..., 5].set(0.0)
    masked = jnp.ones((BATCH, CELLS), bool)
    with on(platform) if platform in PLATFORMS else contextlib.nullcontext():
        ids = jnp.full((BATCH, CELLS), MASK)
        made = run(logits, ids, masked, rule=Rule("entropy", 0.0), implementation=platform)
        jax.block_until_ready(made)
    assert made.chosen.all()


def test_inference_only():
    logits, *rest = inputs(0)
    arguments = {"rule": Rule("confidence", 0.5), "implementation": "tpu"}
    with pytest.raises(NotImplementedError, match="for inference"), on("tpu"):
        jax.jvp(lambda logits: unmask(logits, *rest, **arguments).ids, (logits,), (logits,))
