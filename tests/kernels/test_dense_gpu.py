"""`dense` for GPUs, emulated: its numbers, and bits that depend on their own row only."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.dense import reference
from bytelax_kernels.dense.gpu import Panels, dense, takes

from tests.helpers.emulating import EMULATED, ORDERS, faults, on_gpu, planted
from tests.helpers.marks import slow

pytestmark = list(EMULATED.marks)
# More panels than have room at once beside 32 rows, the last of them not full.
DEPTH, COLUMNS, EPS = 544, 188, 1e-5
FORMS = {
    "alone": {},
    "norm": {"scale": True},
    "norm, gated": {"scale": True, "gated": True},
    "onto": {"onto": True},
    "all": {"scale": True, "gated": True, "onto": True, "times": 2},
}


def every_form(*fast):
    """Parametrizes a test by all forms and dtypes, most of them slow."""
    cases = itertools.product(FORMS, ("bfloat16", "float32"))
    return pytest.mark.parametrize(
        "name, dtype", [case if case in fast else slow(*case) for case in cases]
    )


def operands(count, dtype, seed=0, *, depth=DEPTH, scale=False, onto=False, gated=False, times=1):
    """Arrays and options of `dense`; rows of unlike sizes, so that a norm counts."""
    rng = np.random.default_rng(seed)

    def array(*shape):
        return jnp.asarray(rng.normal(size=shape), dtype)

    rows = array(count, depth) * jnp.asarray(rng.choice([0.1, 1, 30], (count, 1)), dtype)
    kernel = array(depth, *([2] if gated else []), COLUMNS) / 32
    options = {"times": times, "gated": gated, "precision": jax.lax.Precision.HIGHEST}
    if scale:
        options |= {"scale": array(depth), "eps": EPS}
    if onto:
        options["onto"] = array(count, COLUMNS)
    return rows, kernel, options


def product(rows, panels, **options):
    assert takes(rows, panels, options.get("scale"), options.get("onto"))
    return dense(rows, panels, **options)


run = jax.jit(product, static_argnames=("eps", "times", "gated", "precision"))


def by_kernel(rows, kernel, options, order=ORDERS[0]):
    with on_gpu(order):
        panels = Panels.of(kernel, gated=options["gated"])
        return np.asarray(run(rows, panels, **options), np.float32)


def exact(rows, kernel, options):
    """In float64, from the definition."""
    x, w = (np.asarray(part, np.float64) for part in (rows, kernel))
    if "scale" in options:
        scale = np.asarray(options["scale"], np.float64)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + options["eps"]) * scale
    out = np.tensordot(x, w, 1)
    if options["gated"]:
        gate, other = out[:, 0], out[:, 1]
        out = gate / (1 + np.exp(-gate)) * other
    return out + options["times"] * np.asarray(options.get("onto", 0.0), np.float64)


@every_form(("norm, gated", "bfloat16"), ("all", "float32"))
def test_numbers(name, dtype):
    """The kernel rounds less often than the reference: it is as near to the exact result."""
    rows, kernel, options = operands(9, dtype, **FORMS[name])
    wanted = exact(rows, kernel, options)
    by_xla = reference.dense(rows, kernel.reshape(DEPTH, -1), **options)
    ours, theirs = (
        np.abs(np.asarray(out, np.float64) - wanted).max() / np.abs(wanted).max()
        for out in (by_kernel(rows, kernel, options), by_xla)
    )
    assert ours < (6e-3 if dtype == "bfloat16" else 2e-6)
    assert ours <= 1.5 * theirs


@every_form(("norm, gated", "bfloat16"))
def test_a_row_knows_nothing_of_the_others(name, dtype):
    """Its bits depend neither on its place nor on the other rows, nor on how many there are."""
    rows, kernel, options = operands(32, dtype, **FORMS[name])
    garbage = np.array(rows)
    garbage[:4], garbage[5:] = 1e4, -3
    indices = [np.arange(count)[::-1] + 3 for count in (1, 8, 9, 17)]

    @jax.jit
    def of_each(rows, garbage, panels):
        """All rows, some of them, and one among garbage."""

        def of(rows, index):
            onto = {"onto": options["onto"][index]} if "onto" in options else {}
            return product(rows[index], panels, **options | onto)

        some = [of(rows, index) for index in indices]
        return of(rows, slice(None)), some, of(garbage, slice(9))

    with on_gpu():
        panels = Panels.of(kernel, gated=options["gated"])
        out, some, among_garbage = jax.device_get(of_each(rows, garbage, panels))
    assert len(np.unique(np.float32(out), axis=0)) == 32
    for index, found in zip(indices, some, strict=True):
        np.testing.assert_array_equal(found, out[index])
    np.testing.assert_array_equal(among_garbage[4], out[4])


DEPTHS = {"fewer chunks than warps": 32, "more": DEPTH}


def disagree(depth):
    """Whether it matters in which order the threads run, or something read was never written."""
    rows, kernel, options = operands(32, "float32", depth=depth, **FORMS["all"])
    first, *made = [by_kernel(rows, kernel, options, order) for order in ORDERS]
    return any(not np.array_equal(each, first) for each in (first, *made))


@pytest.mark.parametrize("depth", [DEPTHS["fewer chunks than warps"], slow(DEPTHS["more"])])
def test_threads_wait_for_one_another(depth):
    assert not disagree(depth)


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", faults("dense"))
def test_each_barrier_is_missed(fault):
    with planted(fault):
        assert any(map(disagree, DEPTHS.values()))


def test_a_gpu_that_does_not_run_it_is_an_error_with_a_way_out():
    rows, kernel, options = operands(1, "float32", **FORMS["alone"])
    with on_gpu(error=b"no image for it"), pytest.raises(jax.errors.JaxRuntimeError) as raised:
        jax.block_until_ready(run(rows, Panels.of(kernel), **options))
    assert "(no image for it): BYTELAX_NATIVE=0 leaves it to XLA" in str(raised.value)


@pytest.mark.parametrize("contracted, gated", [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_panels_hold_the_kernel(contracted, gated, dtype):
    kernel = jnp.arange(16 * 4 * 2 * 5, dtype=dtype).reshape(16, 4, 2, 5)
    kernel = kernel if contracted == 2 else kernel.reshape(64, 2, 5)
    panels = jax.jit(Panels.of, static_argnames=("contracted", "gated"))(
        kernel, contracted=contracted, gated=gated
    )
    assert panels.values.shape[0] == 2 and panels.values.shape[2] == 8
    assert not panels.values[1, :, 2:].any()  # beyond the matrix
    back, scale = panels.arrays()
    np.testing.assert_array_equal(back, kernel)
    assert scale is None
    assert not Panels.hold((40, 8), jnp.dtype("bfloat16"), 1)


@pytest.mark.parametrize("count", [33, 3], ids=["too many rows", "another dtype"])
def test_what_it_does_not_take_runs_the_reference(count):
    rows, kernel, options = operands(count, "float32", **FORMS["all"])
    panels = Panels.of(kernel, gated=True)
    if count == 3:
        rows, options["onto"] = (x.astype(jnp.bfloat16) for x in (rows, options["onto"]))
    assert not takes(rows, panels)
    wanted = reference.dense(rows, kernel.reshape(DEPTH, -1), **options)
    np.testing.assert_array_equal(dense(rows, panels, **options), wanted)


def test_under_vmap_and_derivatives_are_the_reference():
    rows, kernel, options = operands(4, "float32", **FORMS["norm"])
    panels = Panels.of(kernel)

    def by_reference(rows):
        return reference.dense(rows, kernel, **options)

    def by_kernel(rows):
        return dense(rows, panels, **options)

    @functools.partial(jax.jit, static_argnums=0)
    def slope_of(function, rows):
        return jax.grad(lambda rows: function(rows).sum())(rows)

    with on_gpu():
        each = jax.jit(jax.vmap(lambda row: by_kernel(row[None])[0]))(rows)
        slope = slope_of(by_kernel, rows)
    np.testing.assert_allclose(each, by_reference(rows), rtol=1e-4, atol=1e-4)
    wanted = slope_of(by_reference, rows)
    np.testing.assert_allclose(slope, wanted, rtol=1e-4, atol=1e-4)
