"""Caches in lines, as TPUs store them, hold and give what caches by head do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native
from bytelax_kernels.append_attention import Projections, frequencies
from bytelax_kernels.dispatch import traced_for

from bytelax.models import kv_cache
from bytelax.models.configs import TransformerConfig

BATCH, WINDOW, HEADS, SLOTS, DIM = 2, 5, 3, 24, 8
write, attend = jax.jit(kv_cache.write), jax.jit(kv_cache.attend)


def numbers(seed, heads=HEADS):
    shape = (BATCH, WINDOW, heads, DIM)
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def empty(platform):
    with traced_for(platform):
        config = TransformerConfig(dim=HEADS * DIM, layers=1, heads=HEADS, head_dim=DIM)
        return kv_cache.zeros(config, batch=BATCH, slots=SLOTS, dtype=jnp.float32)[0]


def apart(cache):
    """By head, as numpy arrays."""
    if not cache.in_lines:
        return [np.asarray(x) for x in cache]
    return [np.asarray(x.reshape(BATCH, -1, HEADS, DIM).swapaxes(1, 2)) for x in cache]


@pytest.fixture(name="both")
def fixture_both():
    """A cache of each kind; in the second row nothing was written in two places."""
    positions = jnp.asarray([[20, 21, 22, 23, 24], [3, -1, 5, -1, 7]])
    kinds = [empty("cpu"), empty("tpu")]
    return [write(cache, numbers(0), numbers(1), positions) for cache in kinds]


def assert_same(by_head, in_lines):
    assert in_lines.in_lines and not by_head.in_lines
    assert in_lines.slots == by_head.slots
    for one, other in zip(apart(by_head), apart(in_lines), strict=True):
        np.testing.assert_array_equal(one, other)


def test_write(both):
    assert np.count_nonzero(apart(both[1])[0].any((1, 3))) == 8
    assert_same(*both)


def test_move(both):
    source, target = jnp.asarray([[22, 24], [7, 5]]), jnp.asarray([[20, 21], [-1, 3]])
    assert_same(*(jax.jit(kv_cache.move)(cache, source, target) for cache in both))


def test_resize(both):
    resize = jax.jit(kv_cache.resize, static_argnums=2)
    assert_same(*(resize(cache, jnp.asarray([24, 7]), 8) for cache in both))


def test_attend(both):
    span = kv_cache.causal_span(jnp.asarray([[25, 26, 27, 28, 29], [8, 9, 10, 11, 12]]), window=6)
    qkv = jnp.stack([numbers(seed) for seed in (2, 3, 4, 5)], axis=3)  # two queries a key head
    projections = Projections(qkv, span.positions, frequencies(DIM, 1e4))
    with native.left_out():  # it takes caches by head alone
        out = [attend(projections, cache, span=span) for cache in both]
    np.testing.assert_array_equal(out[0][0], out[1][0])
    assert_same(out[0][1], out[1][1])


@pytest.mark.parametrize("kind", [kv_cache.KVCache, kv_cache.WholeKVCache])
def test_logical_axes_name_every_axis(kind):
    for platform in ("cpu", "tpu"):
        cache = kind(*empty(platform))
        assert len(cache.logical_axes) == cache.keys.ndim
        split = "kv_head" in cache.logical_axes
        assert split == (kind is kv_cache.KVCache)
