"""`verify_attention` against a plain softmax, and bitwise against itself."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.verify_attention import verify_attention

BATCH, WINDOW, HEADS, KV_HEADS, SLOTS, DIM = 3, 5, 4, 2, 40, 8
BLOCKS = [None, 16, 8, 64]  # 16 does not divide the slots; 64 is more than there are
NEWEST = np.full(BATCH, SLOTS - 1, np.int32)

attention = jax.jit(verify_attention, static_argnames="block_kv")


def reference(queries, keys, values, first, last):
    """Float64, over positions: keys and values are [B, K, positions, D]."""
    out = np.zeros(queries.shape)
    group = queries.shape[2] // keys.shape[1]
    for b, w, h in np.ndindex(queries.shape[:3]):
        seen = slice(first[b, w], last[b, w] + 1)
        if first[b, w] > last[b, w]:
            continue
        k = keys[b, h // group, seen].astype(np.float64)
        scores = k @ queries[b, w, h].astype(np.float64) / np.sqrt(queries.shape[-1])
        weights = np.exp(scores - scores.max())
        out[b, w, h] = weights / weights.sum() @ values[b, h // group, seen].astype(np.float64)
    return out


def arrays(seed, positions=SLOTS, dtype=np.float32):
    rng = np.random.default_rng(seed)
    shapes = [(BATCH, WINDOW, HEADS, DIM), *[(BATCH, KV_HEADS, positions, DIM)] * 2]
    return [jnp.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def intervals(seed, low=0, high=SLOTS - 1):
    """Random first <= last in low..high; the second query of every row sees nothing."""
    ends = np.random.default_rng(seed).integers(low, high + 1, (2, BATCH, WINDOW), np.int32)
    first, last = np.sort(ends, axis=0)
    first[:, 1], last[:, 1] = low + 1, low
    return first, last


@pytest.mark.parametrize("block_kv", BLOCKS)
def test_values(block_kv):
    queries, keys, values = map(np.asarray, arrays(0))
    first, last = intervals(0)
    out = attention(queries, keys, values, first=first, last=last, newest=NEWEST, block_kv=block_kv)
    np.testing.assert_allclose(out, reference(queries, keys, values, first, last), atol=2e-6)
    assert not np.asarray(out[:, 1]).any()


@pytest.mark.parametrize("newest", [[7, 15, 16], [17, 37, 39]])
def test_rings(newest):
    """A ring of 16 slots that has not wrapped, wrapped once, wrapped twice."""
    ring, newest = 16, np.array(newest, np.int32)
    queries, keys, values = map(np.asarray, arrays(1))
    rng = np.random.default_rng(2)
    slots = [np.full((BATCH, KV_HEADS, ring, DIM), 1e4, np.float32) for _ in range(2)]
    first, last = (np.zeros((BATCH, WINDOW), np.int32) for _ in range(2))
    for b, top in enumerate(newest):
        for position in range(top + 1):
            for cache, whole in zip(slots, (keys, values), strict=True):
                cache[b, :, position % ring] = whole[b, :, position]
        oldest = max(0, top - ring + 1)
        first[b], last[b] = np.sort(rng.integers(oldest, top + 1, (2, WINDOW)), axis=0)
        first[b, 0], last[b, 0] = oldest, top
    out = attention(queries, *slots, first=first, last=last, newest=newest)
    np.testing.assert_allclose(out, reference(queries, keys, values, first, last), atol=2e-6)


def test_ring_slots_hold_the_later_position():
    """An overwritten position is gone: asking for it alone yields zeros, not its successor."""
    queries, keys, values = arrays(3, positions=8)
    newest = np.full(BATCH, 11, np.int32)  # 0..3 are overwritten
    gone = np.full((BATCH, WINDOW), 3, np.int32)
    out = attention(queries, keys, values, first=gone, last=gone, newest=newest)
    assert not np.asarray(out).any()


@pytest.mark.parametrize("reach", [7, 8, 20, 39])
def test_blocks_that_only_others_see(reach):
    """The loop over blocks runs as far as the longest row; the short ones keep their bits."""
    queries, keys, values = arrays(10)
    last = np.full((BATCH, WINDOW), 5, np.int32)
    first = np.zeros_like(last)
    call = functools.partial(attention, newest=NEWEST, block_kv=8)
    alone = np.asarray(call(queries, keys, values, first=first, last=last))
    longer = last.copy()
    longer[2, 4] = reach
    together = np.asarray(call(queries, keys, values, first=first, last=longer))
    rest = np.ones((BATCH, WINDOW), bool)
    rest[2, 4] = False
    np.testing.assert_array_equal(together[rest], alone[rest])


class TestTrees:
    """Windows whose cells see the text before the window and their own ancestors."""

    def inputs(self, seed):
        queries, keys, values = arrays(seed)
        start = np.array([30, 3, 35], np.int32)  # of the window
        seen = {"first": np.zeros((BATCH, WINDOW), np.int32), "newest": start + WINDOW - 1}
        seen["last"] = np.repeat(start[:, None] - 1, WINDOW, axis=1)
        return queries, keys, values, seen, start

    @pytest.mark.parametrize("block_kv", BLOCKS)
    def test_a_path_is_a_text(self, block_kv):
        """Cells 0, 2 and 4 are a chain beside 1 and 3: as if the others were not there."""
        queries, keys, values, seen, start = self.inputs(11)
        path = [0, 2, 4]
        ancestors = np.broadcast_to(np.eye(WINDOW, dtype=bool), (BATCH, WINDOW, WINDOW)).copy()
        ancestors[:, 2, 0] = ancestors[:, 4, 0] = ancestors[:, 4, 2] = True
        out = attention(queries, keys, values, **seen, ancestors=ancestors, block_kv=block_kv)

        def along_the_path(cache):
            cache = np.array(cache)
            for b, at in enumerate(start):
                cache[b, :, at : at + 3] = cache[b, :, at + np.array(path)].swapaxes(0, 1)
            return cache

        keys, values = map(along_the_path, (keys, values))
        last = start[:, None] + np.arange(3)
        text = reference(np.asarray(queries)[:, path], keys, values, seen["first"][:, :3], last)
        np.testing.assert_allclose(np.asarray(out)[:, path], text, atol=2e-6)

    @pytest.mark.parametrize("block_kv", BLOCKS)
    def test_a_chain_is_causal(self, block_kv):
        queries, keys, values, seen, start = self.inputs(12)
        chain = np.broadcast_to(np.tri(WINDOW, dtype=bool), (BATCH, WINDOW, WINDOW))
        out = attention(queries, keys, values, **seen, ancestors=chain, block_kv=block_kv)
        seen["last"] = start[:, None] + np.arange(WINDOW, dtype=np.int32)
        causal = attention(queries, keys, values, **seen, block_kv=block_kv)
        np.testing.assert_array_equal(out, causal)

    def test_cells_without_a_text_before_them(self):
        """The prefix may be empty, the window may stand across the end of a ring."""
        queries, keys, values = arrays(13)
        newest = np.full(BATCH, SLOTS + 2, np.int32)
        nothing = np.zeros((BATCH, WINDOW), np.int32)
        seen = {"first": nothing + 1, "last": nothing, "newest": newest}
        itself = np.broadcast_to(np.eye(WINDOW, dtype=bool), (BATCH, WINDOW, WINDOW))
        out = attention(queries, keys, values, **seen, ancestors=itself)
        slot = (newest[0] - WINDOW + 1 + np.arange(WINDOW)) % SLOTS
        own = np.asarray(values)[:, :, slot].transpose(0, 2, 1, 3)  # [B, W, K, D]
        np.testing.assert_array_equal(out, np.repeat(own, HEADS // KV_HEADS, axis=2))
