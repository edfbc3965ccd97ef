"""The kernel of `dense`, interpreted: its numbers, and bits that depend on their own row only."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import gpus
from bytelax_kernels.dense import Operands, dense, fuses
from bytelax_kernels.dispatch import traced_for

from tests.helpers.interpreting import on_triton

DEPTH, COLUMNS, EPS = 256, 40, 1e-5  # the last block of columns is not full
FORMS = {
    "alone": {},
    "norm": {"scale": True},
    "norm, gated": {"scale": True, "gated": True},
    "onto": {"onto": True},
    "all": {"scale": True, "gated": True, "onto": True, "times": 2},
}
FAST = {("alone", "bfloat16"), ("norm, gated", "bfloat16"), ("all", "float32")}
EVERY = [
    pytest.param(*case, marks=() if case in FAST else pytest.mark.slow)
    for case in itertools.product(FORMS, ("bfloat16", "float32"))
]


def operands(count, dtype, seed=0, *, scale=False, onto=False, gated=False, times=1):
    """Arrays and options of `dense`; rows of unlike sizes, so that a norm counts."""
    rng = np.random.default_rng(seed)

    def array(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    rows = array(count, DEPTH) * jnp.asarray(rng.choice([0.1, 1, 30], (count, 1)), dtype)
    kernel = array(DEPTH, COLUMNS * (1 + gated)) / 16
    options = {"times": times, "gated": gated, "precision": jax.lax.Precision.HIGHEST}
    if scale:
        options |= {"scale": array(DEPTH), "eps": EPS}
    if onto:
        options["onto"] = array(count, COLUMNS)
    return rows, kernel, options


@functools.partial(jax.jit, static_argnames=("eps", "times", "gated", "precision", "by"))
def run(rows, kernel, *, by, **options):
    return dense(rows, kernel, implementation=by, **options)


def by_kernel(rows, kernel, options):
    with on_triton():
        return jax.block_until_ready(run(rows, kernel, by="gpu", **options))


def exact(rows, kernel, options):
    """In float64, from the definition."""
    x, w = (np.asarray(part, np.float64) for part in (rows, kernel))
    if "scale" in options:
        scale = np.asarray(options["scale"], np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + options["eps"]) * scale
    out = x @ w
    if options["gated"]:
        gate, other = np.split(out, 2, axis=-1)
        out = gate / (1 + np.exp(-gate)) * other
    return out + options["times"] * np.asarray(options.get("onto", 0.0), np.float64)


@pytest.mark.parametrize("name, dtype", EVERY)
def test_numbers(name, dtype):
    """The kernel rounds less often than the reference: it is as near to the exact result."""
    rows, kernel, options = operands(9, dtype, **FORMS[name])
    wanted = exact(rows, kernel, options)
    ours, reference = (
        np.abs(np.asarray(out, np.float64) - wanted).max() / np.abs(wanted).max()
        for out in (by_kernel(rows, kernel, options), run(rows, kernel, by="xla", **options))
    )
    assert ours < (4e-3 if dtype == "bfloat16" else 1e-6)
    assert ours <= 1.5 * reference


@pytest.mark.parametrize("name, dtype", EVERY)
def test_a_row_knows_nothing_of_the_others(name, dtype):
    """Its bits depend neither on its place nor on the other rows, nor on how many there are."""
    rows, kernel, options = operands(9, dtype, **FORMS[name])
    out = by_kernel(rows, kernel, options)
    assert len(np.unique(np.asarray(out, np.float32), axis=0)) == 9

    def again(index, rows=rows):
        onto = {"onto": options["onto"][index]} if "onto" in options else {}
        return by_kernel(rows[index], kernel, options | onto)

    backwards = np.arange(9)[::-1]
    np.testing.assert_array_equal(again(backwards), out[backwards])
    np.testing.assert_array_equal(again(np.array([4])), out[4:5])
    garbage = rows.at[:4].set(1e4).at[5:].set(-3)
    np.testing.assert_array_equal(again(np.arange(9), garbage)[4], out[4])


def test_more_rows_than_a_tile():
    rows, kernel, options = operands(17, "bfloat16", scale=True)
    np.testing.assert_array_equal(
        by_kernel(rows, kernel, options)[:9], by_kernel(rows[:9], kernel, options)
    )


def test_float16_is_not_multiplied_before_its_norm():
    """Large states times a large scale would leave its range."""
    rows, kernel, options = operands(3, "float16", scale=True)
    with pytest.raises(ValueError, match="does not take"):
        run(rows, kernel, by="gpu", **options)


def test_whether_it_is_one_operation():
    """Asked of the platform and the card that a program is traced for."""
    rows, kernel, _ = operands(3, "float32")
    found = Operands(rows, kernel)
    assert not fuses(found)
    with traced_for("gpu"):
        assert fuses(found)
        with gpus.traced_for("8.9"):
            assert not fuses(found)


@pytest.mark.parametrize(
    "count, depth", [(33, DEPTH), (3, 200)], ids=["too many rows", "not in tiles"]
)
def test_other_shapes_run_the_reference(count, depth):
    rows, kernel, _ = operands(count, "float32")
    with pytest.raises(ValueError, match="does not take"):
        run(rows[:, :depth], kernel[:depth], by="gpu")
    out = run(rows[:, :depth], kernel[:depth], by=None)
    np.testing.assert_allclose(out, rows[:, :depth] @ kernel[:depth], rtol=2e-4, atol=1e-4)


def test_inference_only():
    rows, kernel, _ = operands(2, "float32")
    with pytest.raises(NotImplementedError, match="for inference"), on_triton():
        jax.grad(lambda rows: dense(rows, kernel, implementation="gpu").sum())(rows)
