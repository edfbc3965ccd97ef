"""The kernels of `verify_attention`, simulated, against the reference and bitwise themselves."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.verify_attention import verify_attention
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax._src.cudnn import fused_attention_stablehlo

from tests.helpers.interpreting import COMPILED, on
from tests.helpers.marks import slow

BATCH, WINDOW, HEADS, KV_HEADS = 2, 5, 4, 2
CACHES = ("keys", "values")
# TPU: narrow and wide heads; one block, several with an end that is not full. GPU: the same.
# Processors: less than a vector, several of them and a rest.
SHAPES = {
    "tpu": [(40, 8, jnp.float32), (600, 128, jnp.bfloat16), (1100, 16, jnp.float32)],
    "gpu": [(72, 64, jnp.bfloat16), (456, 128, jnp.bfloat16)],
    "cpu": [(40, 6, jnp.float32), (456, 128, jnp.bfloat16), (600, 40, jnp.float32)],
}
CASES = [
    pytest.param(platform, *shape, marks=COMPILED.marks if platform == "cpu" else ())
    for platform, shapes in SHAPES.items()
    for shape in shapes
]
FAST = [CASES[0], CASES[1], CASES[3], *CASES[5:7]]
PLATFORMS = ["tpu", "gpu", COMPILED]
# Windows, batches and slots of a query that is the same in each of them.
AROUND = [
    *((window, 1, 70) for window in range(2, 36)),
    *((9, *each) for each in itertools.product((2, 5, 16), (64, 66, 90))),
]
FEW_AROUND = [(2, 1, 70), (7, 1, 70), (17, 1, 70), (35, 1, 70), (9, 2, 64), (9, 5, 66), (9, 16, 90)]


def inputs(seed, slots, dim, dtype, *, tree=True, wrapped=True):
    """Everything random: texts of any length, intervals, cells; query 2 sees nothing."""
    rng = np.random.default_rng(seed)
    shapes = [(BATCH, WINDOW, HEADS, dim), *[(BATCH, KV_HEADS, slots, dim)] * 2]
    arrays = [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]
    newest = rng.integers(WINDOW - 1, 2 * slots if wrapped else slots, BATCH).astype(np.int32)
    oldest = np.maximum(0, newest - slots + 1)[:, None, None]
    ends = rng.integers(oldest, newest[:, None, None] + 1, (BATCH, WINDOW, 2)).astype(np.int32)
    first, last = np.sort(ends).transpose(2, 0, 1)
    first[:, 2] = last[:, 2] + 1
    ancestors = rng.random((BATCH, WINDOW, WINDOW)) < 0.5
    ancestors[:, 2] = False
    seen = {"first": first, "last": last, "newest": newest}
    seen["ancestors"] = ancestors if tree else np.zeros_like(ancestors)
    return arrays, seen


def compare(platform, arrays, seen):
    out = np.asarray(run(platform, *arrays, **seen), np.float32)
    wanted = np.asarray(run("xla", *arrays, **seen), np.float32)
    tolerance = 1e-5 if arrays[0].dtype == jnp.float32 else 1e-2
    np.testing.assert_allclose(out, wanted, atol=tolerance, rtol=tolerance)
    return out


@functools.partial(jax.jit, static_argnames="implementation")
def attention(queries, keys, values, implementation, **seen):
    return verify_attention(queries, keys, values, implementation=implementation, **seen)


def run(platform, *arrays, **seen):
    if platform == "xla":
        return attention(*arrays, platform, **seen)
    with on(platform):
        return jax.block_until_ready(attention(*arrays, platform, **seen))


@functools.partial(jax.jit, static_argnames="implementation")
def run_each(calls, implementation):
    """In one program; `calls` are arrays and what is seen of them."""
    return [attention(*arrays, implementation, **seen) for arrays, seen in calls]


@pytest.mark.parametrize("platform, slots, dim, dtype", FAST)
@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20), tree=st.booleans(), wrapped=st.booleans())
def test_numbers(platform, slots, dim, dtype, seed, tree, wrapped):
    arrays, seen = inputs(seed, slots, dim, dtype, tree=tree, wrapped=wrapped)
    out = compare(platform, arrays, seen)
    assert not out[:, 2].any()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("platform, slots, dim, dtype", CASES)
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**20), tree=st.booleans(), wrapped=st.booleans())
def test_more_numbers(platform, slots, dim, dtype, seed, tree, wrapped):
    compare(platform, *inputs(seed, slots, dim, dtype, tree=tree, wrapped=wrapped))


@pytest.mark.slow
@pytest.mark.parametrize("platform", PLATFORMS)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 2**20),
    batch=st.integers(1, 3),
    window=st.integers(1, 32),
    heads=st.sampled_from([(1, 1), (2, 2), (2, 1), (6, 3)]),
    slots=st.integers(8, 90),
    dim=st.sampled_from([64, 128]),
)
def test_shapes(platform, seed, batch, window, heads, slots, dim):
    rng = np.random.default_rng(seed)
    heads, kv_heads = heads
    slots = 8 * slots
    dtype = jnp.float32 if platform == "tpu" else jnp.bfloat16
    shapes = [(batch, window, heads, dim), *[(batch, kv_heads, slots, dim)] * 2]
    arrays = [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]
    newest = rng.integers(window - 1, slots, batch).astype(np.int32)
    last = newest[:, None] - np.arange(window, dtype=np.int32)[::-1]
    first = rng.integers(0, last + 1).astype(np.int32)
    compare(platform, arrays, {"first": first, "last": last, "newest": newest})


@pytest.mark.parametrize(
    "platform, slots, dim, dtype",
    [CASES[1], *(slow(*case.values) for case in CASES[3:5]), *CASES[5:]],
)
@pytest.mark.parametrize("reach", [130, 10_000])
def test_blocks_that_every_query_sees(platform, slots, dim, dtype, reach):
    """Causal windows behind long texts: most blocks, but neither the newest nor the overlapping."""
    rng = np.random.default_rng(7)
    newest = np.array([64, slots - 1, slots + 1, slots + 200, 2 * slots - 40], np.int32)
    shapes = [(5, WINDOW, HEADS, dim), *[(5, KV_HEADS, slots, dim)] * 2]
    arrays = [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]
    last = newest[:, None] - np.arange(WINDOW, dtype=np.int32)[::-1]
    first = np.maximum(last - reach, 0)
    compare(platform, arrays, {"first": first, "last": last, "newest": newest})


REFERENCE = [("xla", 40, 8, jnp.float32), ("xla", 600, 16, jnp.bfloat16)]


@pytest.mark.parametrize("platform, slots, dim, dtype", [*REFERENCE, *FAST[1:]])
class TestBitwise:
    """The law of exactness: a query's result is a function of what it sees."""

    def test_a_query_and_what_it_sees_make_its_bits(self, platform, slots, dim, dtype):
        """Another row of the window, other queries and other rows beside it."""
        (queries, keys, values), seen = inputs(1, slots, dim, dtype, tree=False)
        (others, other_keys, other_values), beside = inputs(2, slots, dim, dtype)
        out = np.asarray(run(platform, queries, keys, values, **seen))
        arrays = [
            others.at[0, 4].set(queries[0, 1]),
            jnp.stack([keys[0], other_keys[1]]),
            jnp.stack([values[0], other_values[1]]),
        ]
        for name in ("first", "last"):
            beside[name][0, 4] = seen[name][0, 1]
        beside["newest"][0] = seen["newest"][0]
        beside["ancestors"][0, 4] = False
        again = np.asarray(run(platform, *arrays, **beside))
        np.testing.assert_array_equal(again[0, 4], out[0, 1])

    def test_garbage_out_of_sight(self, platform, slots, dim, dtype):
        """Finite beside what is seen; NaN in blocks that no query of the row sees, in kernels."""
        (queries, keys, values), seen = inputs(3, slots, dim, dtype, tree=False, wrapped=False)
        reach = 20
        seen["newest"][:] = slots - 1
        seen["last"] = np.minimum(seen["last"], reach)
        out = np.asarray(run(platform, queries, keys, values, **seen))
        slot = np.arange(slots)[:, None]
        block = {"tpu": 304, "gpu": 64, "cpu": 1, "xla": 10**6}[platform]
        hidden = np.where(slot >= -(-reach // block) * block, np.nan, 1e3)
        garbage = [
            jnp.where(slot > reach, jnp.asarray(hidden, dtype), part) for part in (keys, values)
        ]
        again = np.asarray(run(platform, queries, *garbage, **seen))
        np.testing.assert_array_equal(again, out)


@pytest.mark.parametrize("platform", [COMPILED])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
class TestAnywhere:
    """In the kernel for processors a query's bits depend on the positions that it sees alone."""

    @pytest.mark.parametrize("around", [FEW_AROUND, slow(AROUND)], ids=["few", "all"])
    def test_in_any_window_batch_and_ring(self, platform, dtype, around):
        rng, dim = np.random.default_rng(5), 20
        text = [rng.normal(size=(1, KV_HEADS, 90, dim)).astype(dtype) for _ in CACHES]
        queries = rng.normal(size=(1, 70, HEADS, dim)).astype(dtype)

        def call(window, batch, slots, end=70, reach=30):
            position = end - window + np.arange(window, dtype=np.int32)
            held = end - 1 - (end - 1 - np.arange(slots)) % slots
            rings = [np.repeat(one[:, :, held % 90], batch, axis=0) for one in text]
            seen = {
                "first": np.tile(np.maximum(position - reach + 1, 0), (batch, 1)),
                "last": np.tile(position, (batch, 1)),
                "newest": np.full(batch, end - 1, np.int32),
            }
            return [np.repeat(queries[:, end - window : end], batch, axis=0), *rings], seen

        alone, *others = run_each([call(1, 1, 70), *(call(*each) for each in around)], platform)
        for each, out in zip(around, others, strict=True):
            np.testing.assert_array_equal(out[-1, -1], alone[0, 0], err_msg=str(each))

    def test_on_a_chain_as_on_a_tree(self, platform, dtype):
        """Nodes 0, 2 and 3 are a branch; on the chain they are its three bytes."""
        rng, dim, start = np.random.default_rng(6), 20, 41
        keys, values = (jnp.asarray(rng.normal(size=(1, KV_HEADS, 48, dim)), dtype) for _ in CACHES)
        queries = jnp.asarray(rng.normal(size=(1, 5, HEADS, dim)), dtype)
        branch = np.array([0, 2, 3])
        ancestors = np.eye(5, dtype=bool)[None]
        for depth, node in enumerate(branch):
            ancestors[0, node, branch[: depth + 1]] = True
        on_tree = run(
            platform, queries, keys, values, ancestors=ancestors,
            first=np.zeros((1, 5), np.int32), last=np.full((1, 5), start - 1, np.int32),
            newest=np.array([start + 4], np.int32),
        )  # fmt: skip
        chain = np.concatenate([np.arange(start), start + branch])
        on_chain = run(
            platform, queries[:, branch], keys[:, :, chain], values[:, :, chain],
            first=np.zeros((1, 3), np.int32), last=start + np.arange(3, dtype=np.int32)[None],
            newest=np.array([start + 2], np.int32),
        )  # fmt: skip
        np.testing.assert_array_equal(np.asarray(on_tree)[:, branch], on_chain)

    def test_threads_share_a_long_text(self, platform, dtype):
        """As one thread makes of each row alone."""
        rng, dim = np.random.default_rng(7), 64
        arrays = [
            rng.normal(size=shape).astype(dtype)
            for shape in ((3, 40, HEADS, dim), *[(3, KV_HEADS, 200, dim)] * 2)
        ]
        last = np.tile(160 + np.arange(40, dtype=np.int32), (3, 1))
        seen = {"first": 0 * last, "last": last, "newest": last[:, -1]}
        whole = run(platform, *arrays, **seen)
        for row, w in itertools.product(range(3), (0, 17, 39)):
            queries, keys, values = (x[row : row + 1] for x in arrays)
            own = {
                name: x[row : row + 1] if x.ndim == 1 else x[row : row + 1, w : w + 1]
                for name, x in seen.items()
            }
            alone = run(platform, queries[:, w : w + 1], keys, values, **own)
            np.testing.assert_array_equal(alone[0, 0], whole[row, w])


def test_inference_only():
    arrays, seen = inputs(4, 40, 8, jnp.float32)
    seen = jax.tree.map(jnp.asarray, seen)

    def loss(queries, implementation):
        out = verify_attention(queries, *arrays[1:], implementation=implementation, **seen)
        return out.sum()

    with pytest.raises(NotImplementedError, match="for inference"), on("tpu"):
        jax.grad(loss)(arrays[0], "tpu")
    by_default = jax.jit(jax.grad(loss), static_argnums=1)(arrays[0], None)
    wanted = jax.jit(jax.grad(loss), static_argnums=1)(arrays[0], "xla")
    np.testing.assert_array_equal(by_default, wanted)


def test_shapes_that_do_not_fit():
    queries = jnp.zeros((1, 4, 2, 8), jnp.float32)
    cache = jnp.zeros((1, 1, 70, 8), jnp.float32)
    seen = {"first": jnp.zeros((1, 4), int), "last": jnp.zeros((1, 4), int)}
    with pytest.raises(ValueError, match="the gpu kernel does not take"):
        verify_attention(
            queries, cache, cache, newest=jnp.zeros(1, int), implementation="gpu", **seen
        )


@pytest.mark.parametrize("dim", [slow(64), slow(128), 192])
def test_shared_memory_holds_what_the_kernel_takes(dim):
    """Lowering for the H200 counts it again, and refuses what has no room."""
    arrays, seen = inputs(6, 256, dim, jnp.bfloat16)
    attention.trace(*arrays, "gpu", **seen).lower(lowering_platforms=("cuda",))
    wide, seen = inputs(6, 256, 256, jnp.bfloat16)
    with pytest.raises(ValueError, match="the gpu kernel does not take"):
        attention(*wide, "gpu", **seen)


def test_cudnn_is_asked_for_by_name(monkeypatch):
    """Without a GPU it can only be lowered."""
    monkeypatch.setattr(fused_attention_stablehlo, "check_cudnn_version", lambda: 91200)
    arrays, seen = inputs(5, 72, 64, jnp.bfloat16)
    lowered = attention.trace(*arrays, "cudnn", **seen).lower(lowering_platforms=("cuda",))
    assert "__cudnn$fmha" in lowered.as_text()
    with pytest.raises(ValueError, match="the cudnn kernel does not take"):
        attention(*(part.astype(jnp.float32) for part in arrays), "cudnn", **seen)
