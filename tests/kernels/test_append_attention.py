"""The kernels of `append_attention` against its two steps and bitwise themselves."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native
from bytelax_kernels.append_attention import Projections, append_attention, frequencies
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from tests.helpers.emulating import EMULATED, ORDERS, faults, on_gpu, planted
from tests.helpers.interpreting import COMPILED
from tests.helpers.marks import slow

BATCH, WINDOW, HEADS, KV_HEADS, DIM = 2, 5, 4, 2, 16
SLOTS = 152  # the last block of slots is not full
CACHES = ("keys", "values")


def inputs(seed, dtype, *, tree=False, wrapped=True, window=WINDOW, heads=HEADS, slots=SLOTS):
    """Texts of any length, any intervals; query 2 sees nothing, and entry 1 of row 1 is absent."""
    rng = np.random.default_rng(seed)
    new = (BATCH, window, KV_HEADS, heads // KV_HEADS + 2, DIM)
    cache = (BATCH, KV_HEADS, slots, DIM)
    qkv, *arrays = (jnp.asarray(rng.normal(size=shape), dtype) for shape in (new, cache, cache))
    newest = rng.integers(window - 1, (2 if wrapped else 1) * slots, BATCH).astype(np.int32)
    positions = newest[:, None] - np.arange(window, dtype=np.int32)[::-1]
    positions[1, 1] = -1
    oldest = np.maximum(0, newest - slots + 1)[:, None, None]
    ends = rng.integers(oldest, newest[:, None, None] + 1, (BATCH, window, 2)).astype(np.int32)
    first, last = np.sort(ends).transpose(2, 0, 1)
    first[:, 2] = last[:, 2] + 1
    turns = rng.integers(0, 2000, (BATCH, window)).astype(np.int32)
    projections = Projections(qkv, turns, frequencies(DIM, 1e4))
    seen = {"positions": positions, "first": first, "last": last, "newest": newest}
    if tree:
        seen["ancestors"] = rng.random((BATCH, window, window)) < 0.5
    return {"projections": projections} | dict(zip(CACHES, arrays, strict=True)) | seen


def with_entries(window, change):
    """The window with other projections."""
    projections = window["projections"]
    return window | {"projections": projections._replace(qkv=change(projections.qkv))}


@jax.jit
def _reference(**window):
    with native.left_out():
        return append_attention(**window, implementation="xla")


@functools.partial(jax.jit, static_argnames="platform")
def _by_kernel(platform, window):
    return append_attention(**window, implementation=platform)


def run(platform, order=ORDERS[0], /, **window):
    """Emulated for the GPU, and compiled for the processor."""
    with on_gpu(order) if platform == "gpu" else contextlib.nullcontext():
        return jax.block_until_ready(_by_kernel(platform, window))


both = pytest.mark.parametrize("platform", [EMULATED, COMPILED])


@pytest.mark.parametrize(
    ("platform", "dtype"),
    [
        pytest.param(*EMULATED.values, "bfloat16", marks=EMULATED.marks),
        pytest.param(*EMULATED.values, "float32", marks=[*EMULATED.marks, pytest.mark.slow]),
        *(pytest.param(*COMPILED.values, x, marks=COMPILED.marks) for x in ("float32", "bfloat16")),
    ],
)
@pytest.mark.parametrize(("tree", "heads"), [(True, 10), slow(False, 2), (False, 4)])
@settings(max_examples=2, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(seed=st.integers(0, 2**20), wrapped=st.booleans())
def test_numbers(platform, dtype, tree, heads, seed, wrapped):
    """10 heads of 5 queries are more rows than a tile."""
    window = inputs(seed, dtype, tree=tree, wrapped=wrapped, heads=heads)
    made, wanted = run(platform, **window), _reference(**window)
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    for ours, theirs in zip(made, wanted, strict=True):
        ours, theirs = (np.asarray(x, np.float32) for x in (ours, theirs))
        np.testing.assert_allclose(ours, theirs, atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(made[2], wanted[2])  # values are written as they are
    kept = np.asarray(wanted[1] == window["keys"]).all(-1)
    np.testing.assert_array_equal(np.asarray(made[1] == window["keys"]).all(-1), kept)
    assert tree or not np.asarray(made[0], np.float32)[:, 2].any()


@both
@pytest.mark.parametrize("wrapped", [slow(False), True])
class TestBitwise:
    """A query and what it sees make its bits."""

    def test_other_queries_and_rows(self, platform, wrapped):
        window, others = (inputs(seed, "bfloat16", wrapped=wrapped) for seed in (1, 2))
        out, beside = run(platform, **window)[0], others["projections"].qkv
        queries = HEADS // KV_HEADS
        changed = with_entries(
            window,
            lambda qkv: qkv.at[:, :3, :, :queries].set(beside[:, :3, :, :queries]),
        )
        np.testing.assert_array_equal(run(platform, **changed)[0][:, 3], out[:, 3])
        changed = with_entries(window, lambda qkv: qkv.at[1].set(beside[1]))
        for name in CACHES:
            changed[name] = changed[name].at[1].set(others[name][1])
        np.testing.assert_array_equal(run(platform, **changed)[0][0], out[0])

    def test_slots_out_of_sight(self, platform, wrapped):
        window = inputs(3, "bfloat16", wrapped=wrapped)
        out = run(platform, **window)[0]
        slot = np.arange(SLOTS)
        held = window["newest"][:, None] - (window["newest"][:, None] - slot) % SLOTS
        seen = (held[:, None] >= window["first"][..., None]) & (
            held[:, None] <= window["last"][..., None]
        )
        hidden = ~seen.any(1)[:, None, :, None]
        assert hidden.any()
        garbage = {
            name: jnp.where(hidden, jnp.asarray(1e4, "bfloat16"), window[name]) for name in CACHES
        }
        np.testing.assert_array_equal(run(platform, **window | garbage)[0], out)

    def test_how_wide_the_window_is(self, platform, wrapped):
        """The last byte alone, with the others already in the cache."""
        window = inputs(4, "bfloat16", wrapped=wrapped)
        out, *cache = run(platform, **window)
        qkv, turns, frequency = window["projections"]
        alone = {name: window[name][:, -1:] for name in ("positions", "first", "last")}
        alone["projections"] = Projections(qkv[:, -1:], turns[:, -1:], frequency)
        again, *written = run(platform, **window | alone | dict(zip(CACHES, cache, strict=True)))
        np.testing.assert_array_equal(again[:, 0], out[:, -1])
        jax.tree.map(np.testing.assert_array_equal, written, cache)


def wrapped_ring(slots):
    """A window that sees all of a ring, in slots before and behind the newest."""
    window = inputs(6, "float32", slots=slots)
    newest = np.array([2 * slots - 9, slots + 70], np.int32)
    last = newest[:, None] - np.arange(WINDOW, dtype=np.int32)[::-1]
    window |= {"newest": newest, "last": last, "positions": last}
    return window | {"first": last - slots + WINDOW}


@both
def test_rings_that_have_wrapped(platform):
    window = wrapped_ring(SLOTS)
    out, wanted = run(platform, **window)[0], _reference(**window)[0]
    np.testing.assert_allclose(out, wanted, atol=1e-5, rtol=1e-5)


@both
def test_rows_without_anything(platform):
    """As of texts that close no patch: nothing is written, and zeros come out."""
    window = inputs(8, "float32")
    absent = np.full((BATCH, WINDOW), -1, np.int32)
    window |= {"positions": absent, "last": absent, "first": 0 * absent}
    window["newest"] = np.full(BATCH, -1, np.int32)
    out, *cache = run(platform, **window)
    assert not np.asarray(out).any()
    for made, name in zip(cache, CACHES, strict=True):
        np.testing.assert_array_equal(made, window[name])


TWO_TILES = 1100  # slots, of which a thread block has more than it holds at once


def disagree(slots):
    """Whether it matters in which order the threads run, or something read was never written."""
    made = [jax.tree.leaves(run("gpu", order, **wrapped_ring(slots))) for order in ORDERS]
    return any(
        not np.array_equal(x, y) for each in made for x, y in zip(each, made[0], strict=True)
    )


@pytest.mark.parametrize("platform", [EMULATED])
@pytest.mark.parametrize("slots", [SLOTS, slow(TWO_TILES)])
def test_threads_wait_for_one_another(platform, slots):
    assert not disagree(slots)


@pytest.mark.exhaustive
@pytest.mark.parametrize("platform", [EMULATED])
@pytest.mark.parametrize("fault", faults("append_attention"))
def test_each_barrier_is_missed(platform, fault):
    with planted(fault):
        assert disagree(SLOTS) or disagree(TWO_TILES)


@both
def test_each_device_has_its_heads(platform):
    """As of tensor parallelism, in `jax.shard_map`."""
    window = inputs(9, "float32")
    wanted = run(platform, **window)
    mesh = Mesh(np.array(jax.devices()[:2]), ("tensor",))
    heads, cache = P(None, None, "tensor"), P(None, "tensor")
    specs = dict.fromkeys(window, P()) | dict.fromkeys(CACHES, cache)
    specs["projections"] = Projections(heads, P(), P())

    def attend(window):
        return append_attention(**window, implementation=platform)

    split = jax.shard_map(
        attend, mesh=mesh, in_specs=(specs,), out_specs=(heads, cache, cache), check_vma=False
    )
    with on_gpu() if platform == "gpu" else contextlib.nullcontext():
        made = jax.block_until_ready(jax.jit(split)(window))
    jax.tree.map(np.testing.assert_array_equal, made, wanted)


def test_large_batches_run_two_steps():
    window = inputs(0, "float32")
    many = jax.tree.map(lambda x: x if x.ndim == 1 else jnp.repeat(x, 40, axis=0), window)
    many["newest"] = jnp.repeat(window["newest"], 40)
    with pytest.raises(ValueError, match="does not take"):
        append_attention(**many, implementation="gpu")
    with native.left_out():
        out = jax.jit(lambda window: append_attention(**window))(many)[0]
    np.testing.assert_array_equal(out[::40], _reference(**window)[0])
