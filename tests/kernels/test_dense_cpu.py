"""The processor's `dense`: its numbers, and a row's bits beside any number of others."""

import ctypes
import dataclasses
import functools
import itertools
import mmap
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native
from bytelax_kernels.dense import cpu

pytestmark = pytest.mark.skipif(not native.available(), reason=str(native.why_not()))

FORMS = {
    "alone": {},
    "norm": {"scale": True},
    "gated": {"gated": True},
    "onto": {"onto": True},
    "all": {"scale": True, "gated": True, "onto": True, "times": 2},
}
# Full panels; a tail; less than one, whose rows begin where no vector does.
SHAPES = [(256, 64), (161, 40), (33, 7)]
WEIGHTS = ("float32", "bfloat16", "int8")
COUNTS = (*range(1, 18), 32, 49, 64)  # a panel makes the sums of 48 at a time


def operands(shape, weights, rows_dtype, *, scale=False, onto=False, gated=False, times=1):
    depth, columns = shape
    rng = np.random.default_rng(0)
    size = rng.choice([0.1, 1, 30], (max(COUNTS), 1))  # unlike sizes, so that a norm counts
    rows = (size * rng.normal(size=(max(COUNTS), depth))).astype(rows_dtype)
    matrix = rng.normal(size=(depth, columns * (1 + gated))).astype(np.float32) / depth**0.5
    scales = None
    if weights == "int8":
        scales = (np.abs(matrix).max(0) / 127).astype(np.float32)
        matrix = np.rint(matrix / scales).astype(np.int8)
    else:
        matrix = matrix.astype(weights)
    kernel = matrix.reshape(depth, 2, columns) if gated else matrix
    panels = jax.tree.map(jnp.asarray, cpu.Panels.of(kernel, scale=scales, gated=gated))
    form = {"eps": 1e-5, "times": times, "gated": gated}
    more = {
        "scale": rng.normal(size=depth).astype(rows_dtype) if scale else None,
        "onto": rng.normal(size=(max(COUNTS), columns)).astype(rows_dtype) if onto else None,
    }
    return rows, matrix, scales, panels, form, more


@functools.partial(jax.jit, static_argnames=("eps", "times", "gated"))
def run(rows, panels, **how):
    return cpu.dense(rows, panels, **how)


def exact(rows, matrix, scales, *, eps, times, gated, scale, onto):
    """In float64, from the definition."""
    x, w = np.asarray(rows, np.float64), np.asarray(matrix, np.float64)
    if scales is not None:
        w = w * scales
    if scale is not None:
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * np.asarray(scale, np.float64)
    out = x @ w
    if gated:
        gate, other = np.split(out, 2, axis=-1)
        out = gate / (1 + np.exp(-np.clip(gate, -700, None))) * other
    return out if onto is None else out + times * np.asarray(onto, np.float64)


@pytest.mark.parametrize("rows_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_numbers(name, rows_dtype):
    within = 2e-6 if rows_dtype == "float32" else 4e-3
    cases = [*itertools.product(SHAPES, WEIGHTS)]
    given = [operands(*case, rows_dtype, **FORMS[name]) for case in cases]
    outs = run_each([(rows, panels, more) for rows, _, _, panels, _, more in given], **given[0][4])
    for case, (rows, matrix, scales, _, form, more), out in zip(cases, given, outs, strict=True):
        wanted = exact(rows, matrix, scales, **form, **more)
        off = np.abs(np.asarray(out, np.float64) - wanted).max()
        assert off <= within * np.abs(wanted).max(), case


@functools.partial(jax.jit, static_argnames=("eps", "times", "gated"))
def run_each(calls, **form):
    """In one program; `calls` are rows, panels, and the other arrays."""
    return [cpu.dense(rows, panels, **form, **more) for rows, panels, more in calls]


@functools.partial(jax.jit, static_argnames=("eps", "times", "gated"))
def run_each_count(rows, panels, *, onto=None, **how):
    """The last rows alone, of every count, in one program."""
    own = ((rows[-count:], None if onto is None else onto[-count:]) for count in COUNTS)
    return [cpu.dense(rows, panels, onto=onto, **how) for rows, onto in own]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "all" else pytest.mark.slow) for name in FORMS]
)
def test_a_row_has_the_same_bits_beside_any_number_of_others(name, weights, shape):
    for rows_dtype in ("float32", "bfloat16"):
        rows, _, _, panels, form, more = operands(shape, weights, rows_dtype, **FORMS[name])
        outs = run_each_count(rows, panels, **form, **more)
        *fewer, whole = (np.asarray(out, np.float32) for out in outs)
        assert len(np.unique(whole, axis=0)) == len(whole) == len(rows)
        for count, out in zip(COUNTS, fewer, strict=False):
            np.testing.assert_array_equal(out, whole[-count:], err_msg=str(count))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORMS)
def test_rows_of_zeros_are_left_out(name, dtype):
    """Their products are zeros, even of weights that are not finite; other rows keep their bits."""
    rows, _, _, panels, form, more = operands((96, 40), dtype, dtype, **FORMS[name])
    whole = np.asarray(run(rows, panels, **form, **more))
    onto = 0 if more["onto"] is None else form["times"] * more["onto"]
    never = dataclasses.replace(panels, values=panels.values * np.nan)
    for there in (np.arange(len(rows)) % 3 != 1, np.zeros(len(rows), bool)):
        own = rows * there[:, None]
        out = np.asarray(run(own, panels, **form, **more))
        np.testing.assert_array_equal(out, np.where(there[:, None], whole, onto))
        out = np.asarray(run(own, never, **form, **more))
        np.testing.assert_array_equal(np.isfinite(out).all(1), ~there)


def test_a_call_ends_when_all_panels_are_made():
    """Other rows each time, so that what an earlier call has left behind is seen."""
    rng = np.random.default_rng(0)
    rows = jnp.asarray(rng.normal(size=(40, 2, 8192)), jnp.float32)
    matrix = rng.normal(size=(8192, 128)).astype(np.float32)

    @jax.jit
    def often(rows, panels):
        return jax.lax.scan(lambda _, x: (0, cpu.dense(x, panels)), 0, rows)[1]

    out = often(rows, jax.tree.map(jnp.asarray, cpu.Panels.of(matrix)))
    for first in range(0, 128, 32):  # a panel alone is the work of one thread
        panel = jax.tree.map(jnp.asarray, cpu.Panels.of(matrix[:, first : first + 32]))
        np.testing.assert_array_equal(out[..., first : first + 32], often(rows, panel))


def test_threads_share_a_large_matrix():
    """The same bits as one thread makes of it: each panel is the work of one of them."""
    rows, matrix, _, panels, form, more = operands((600, 1100), "float32", "float32")
    assert panels.values.nbytes > 1 << 21
    whole = np.asarray(run(rows[:9], panels, **form, **more))
    for first in range(0, 1100, 32):
        part = jax.tree.map(jnp.asarray, cpu.Panels.of(matrix[:, first : first + 32]))
        own = np.asarray(run(rows[:9], part, **form, **more))
        np.testing.assert_array_equal(own, whole[:, first : first + 32])


def test_gates_far_from_zero_stay_finite():
    kernel = np.ones((2, 2, 3), np.float32)
    panels = jax.tree.map(jnp.asarray, cpu.Panels.of(kernel, gated=True))
    rows = jnp.asarray([[1e4, 1e4], [-1e4, -1e4], [45.0, 45.0], [-45.0, -45.0]], jnp.float32)
    assert np.isfinite(np.asarray(run(rows, panels, gated=True))).all()


@pytest.mark.parametrize("columns", [64, 40])
def test_the_halves_of_a_gated_matrix_alone(columns):
    """Without the gate a product appends both halves, whether or not they fill their panels."""
    rows, matrix, _, panels, _, _ = operands((96, columns), "float32", "float32", gated=True)
    onto = np.random.default_rng(1).normal(size=(9, 2 * columns)).astype(np.float32)
    out = run(rows[:9], panels, onto=onto)
    np.testing.assert_allclose(out, onto + np.asarray(rows[:9]) @ matrix, rtol=1e-4, atol=1e-4)


def test_two_contracted_axes():
    kernel = np.random.default_rng(0).normal(size=(3, 5, 7)).astype(np.float32)
    panels = jax.tree.map(jnp.asarray, cpu.Panels.of(kernel, contracted=2))
    rows = np.random.default_rng(1).normal(size=(2, 15)).astype(np.float32)
    np.testing.assert_allclose(run(rows, panels), rows @ kernel.reshape(15, 7), rtol=1e-5)
    assert panels.features == (7,) and panels.shape == (3, 5, 7)


def test_under_vmap():
    rows, _, _, panels, form, more = operands((96, 40), "float32", "float32")
    out = jax.vmap(lambda rows: run(rows, panels, **form, **more))(rows.reshape(-1, 4, 96))
    np.testing.assert_array_equal(out.reshape(-1, 40), run(rows, panels, **form, **more))


def test_without_the_library(monkeypatch):
    """One sentence says why, and nothing is called."""
    native.instructions.cache_clear()
    monkeypatch.setenv("BYTELAX_NATIVE", "0")
    assert not native.available()
    monkeypatch.undo()
    native.instructions.cache_clear()
    assert native.available()


@pytest.mark.parametrize(
    ("where", "name", "value", "says"),
    [
        (os.environ, "BYTELAX_NATIVE", "0", "BYTELAX_NATIVE=0 leaves the compiled kernels out."),
        (os.environ, "BYTELAX_NATIVE", "mmx", "BYTELAX_NATIVE=mmx is none of 0, "),
        (native, "_interface", lambda: (0, 0), "Compiled for a newer jaxlib"),
        # JAX does not start on the processor once it was given a kernel of another interface.
        (native, "_interface", lambda: (1, 99), "This jaxlib has another interface"),
        (native, "headers", lambda: pathlib.Path("nowhere"), "This jaxlib does not say which k"),
        # It may take other operands, and would return other numbers in silence.
        (native, "sources", lambda kinds: "0" * 16, "Compiled from other sources"),
    ],
)
def test_a_library_that_does_not_fit_is_left_out(monkeypatch, where, name, value, says):
    setting = monkeypatch.setitem if where is os.environ else monkeypatch.setattr
    setting(where, name, value)
    assert native.why_not().startswith(says)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["avx512bf16", "avx512", "avx2"])
def test_other_instructions_than_the_best(name):
    """The fast laws of products and attention, by what the kernels use on other processors."""
    environment = os.environ | {"BYTELAX_NATIVE": name}
    told = [sys.executable, "-c", "from bytelax_kernels import native; print(native.why_not())"]
    why_not = subprocess.run(told, env=environment, capture_output=True, text=True, check=True)
    if name == native.instructions() or why_not.stdout.strip() != "None":
        pytest.skip(f"nothing else: {why_not.stdout.strip()}")
    laws = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", __file__]
    laws += [str(pathlib.Path(__file__).with_name("test_append_attention.py"))]
    done = subprocess.run(laws, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_instructions_that_the_compiler_did_not_know():
    """The next best are taken."""

    class Library(ctypes.CDLL):
        def __init__(self):
            pass

        def __getattr__(self, name):
            if not name.endswith("_avx2"):
                raise AttributeError(name)
            return None

    try:
        assert native._best(Library()) == "avx2"
    except native.Missing:
        pytest.skip("a processor without AVX2")


def test_what_to_do_names_a_script_only_where_there_is_one(monkeypatch, tmp_path):
    """Who installed a wheel has no script, and that of a checkout compiles for the checkout."""
    monkeypatch.setattr(native, "_LIBRARY", tmp_path / "bytelax_kernels" / "libbytelax.so")
    script = tmp_path / "build_native.py"
    assert "pip install" in native.why_not() and str(script) not in native.why_not()
    script.touch()
    assert str(script) in native.why_not() and "pip install" not in native.why_not()


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="the system has no large pages")
def test_panels_lie_in_large_pages_and_are_not_copied():
    kernel = np.random.default_rng(0).normal(size=(512, 2, 1376)).astype(np.float32)
    panels = cpu.Panels.of(kernel, gated=True)
    address = panels.values.ctypes.data
    assert address % (1 << 21) == 0
    (device,) = jax.devices()[:1]
    on_device = jax.device_put(panels, device, may_alias=True)
    assert on_device.values.unsafe_buffer_pointer() == address
    del panels
    np.testing.assert_array_equal(on_device.arrays()[0], kernel)
