"""Key-value caches addressed by position, and the span of positions a window sees.

Position p lives in slot `p % S`. A rejected window leaves garbage only in slots that the next
window overwrites or masks, so rollback is a matter of lengths (no copy, no undo). With a sliding
attention window, S >= attention window + decode window slots suffice: a ring.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Bool, Float, Int

from bytelax.pods.sharding import BATCH
from bytelax.pytree import pytree, static

BLOCK = 256  # slots read at a time from the caches that grow with the text


class KVCache(NamedTuple):
    """One layer's keys and values; heads before slots, as the attention reads them."""

    keys: Float[Array, "B K S D"]
    values: Float[Array, "B K S D"]

    logical_axes = (BATCH, "kv_head", None, "head_dim")


class WholeKVCache(KVCache):
    """A cache that is not split by heads: that of the entropy model."""

    logical_axes = (BATCH, None, None, "head_dim")


Caches = tuple[KVCache | None, ...]  # one a layer; None for one whose attention does not run


@pytree
class Span:
    """Where a window of queries stands and what each of them may see.

    Attributes:
      positions: position of each query; -1 marks a query that is not there (nothing is written).
      first: first visible position.
      last: last visible position, inclusive; its own position when causal.
      newest: latest position written once the window is in the cache.
      window: static; no query sees more positions than that, its own included. None: no limit.
      ancestors: for a tree of queries, which of the window's own positions each sees beside
        `first..last`. None: a chain.
      turns: positions for the rotary phases, where they differ from `positions`: the nodes of a
        tree are stored one after another, but their phases count their depth.
    """

    positions: Int[Array, "B W"]
    first: Int[Array, "B W"]
    last: Int[Array, "B W"]
    newest: Int[Array, " B"]
    window: int | None = static()
    ancestors: Bool[Array, "B W W"] | None = None
    turns: Int[Array, "B W"] | None = None


def causal_span(
    positions: Int[Array, "B W"],
    *,
    window: int | None,
    first: Int[Array, "B W"] | int = 0,
) -> Span:
    """Each query sees the positions up to its own: at most `window`, and none before `first`."""
    lowest = jnp.zeros_like(positions) if window is None else positions - window + 1
    return Span(
        positions=positions,
        first=jnp.maximum(jnp.maximum(lowest, first), 0),
        last=positions,
        newest=positions.max(1),
        window=window,
    )


def tree_span(
    start: Int[Array, " B"],
    ancestors: Bool[Array, "B W W"],
    *,
    window: int | None,
    first: Int[Array, "B W"] | int = 0,
) -> Span:
    """Each node of a tree sees the text before `start`, itself and the nodes above it.

    Args:
      start: position of the root.
      ancestors: [b, i, j]: node j is node i or above it.
      window: as in `causal_span`, counted along the branches.
      first: as in `causal_span`.
    """
    width = ancestors.shape[1]
    turns = start[:, None] + ancestors.sum(-1) - 1
    span = causal_span(turns, window=window, first=first)
    positions = start[:, None] + jnp.arange(width)
    return dataclasses.replace(
        span,
        positions=positions,
        last=jnp.broadcast_to(start[:, None] - 1, positions.shape),
        newest=positions[:, -1],
        ancestors=ancestors,
        turns=turns,
    )


def move(cache: KVCache, source: Int[Array, "B W"], target: Int[Array, "B W"]) -> KVCache:
    """Puts what lies at positions `source` at positions `target`; where that is -1, nowhere."""
    slots = cache.keys.shape[2]

    def picked(buffer):
        return jnp.take_along_axis(buffer, source[:, None, :, None] % slots, axis=2).swapaxes(1, 2)

    return write(cache, picked(cache.keys), picked(cache.values), target)


def zeros(
    *,
    layers: int,
    batch: int,
    kv_heads: int,
    slots: int,
    head_dim: int,
    dtype,
    kind: type[KVCache] = KVCache,
) -> Caches:
    """Empty caches. Every array is its own buffer, so that the state can be donated."""
    shape = (batch, kv_heads, slots, head_dim)
    return tuple(kind(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in range(layers))


def ring_slots(*, window: int | None, width: int, capacity: int) -> int:
    """Slots for `capacity` positions when at most `width` are written beyond the visible ones.

    A multiple of 8: kernels move caches in tiles of 8 lines.
    """
    needed = capacity if window is None else min(window + width, capacity)
    return -(-needed // 8) * 8


def write(
    cache: KVCache,
    keys: Float[Array, "B W K D"],
    values: Float[Array, "B W K D"],
    positions: Int[Array, "B W"],
) -> KVCache:
    """Puts each position's key and value in its slot; position -1 writes nowhere."""
    batch, kv_heads, slots, dim = cache.keys.shape
    slot = jnp.where(positions < 0, slots, positions % slots)  # out of bounds is dropped
    slot = jnp.repeat(slot, kv_heads, axis=0)
    row = jnp.arange(batch * kv_heads)[:, None]

    # Rows and heads as one axis, as the attention multiplies them: with an axis of size 1 between
    # the two, XLA on CPU fuses the update into the product and copies the cache for it.
    def put(buffer, update):
        update = update.astype(buffer.dtype).swapaxes(1, 2).reshape(batch * kv_heads, -1, dim)
        merged = buffer.reshape(batch * kv_heads, slots, dim)
        return merged.at[row, slot].set(update, mode="drop").reshape(buffer.shape)

    return cache._replace(keys=put(cache.keys, keys), values=put(cache.values, values))


def resize(cache: KVCache, newest: Int[Array, " B"], slots: int) -> KVCache:
    """The latest `slots` positions of `cache` in a ring of `slots`."""
    old = cache.keys.shape[2]
    if old == slots:
        return cache
    position = newest[:, None] - (newest[:, None] - jnp.arange(slots)) % slots
    index = jnp.where(position < 0, 0, position % old)[:, None, :, None]
    return type(cache)(*(jnp.take_along_axis(buffer, index, axis=2) for buffer in cache))


def attend(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B W K D"],
    values: Float[Array, "B W K D"],
    cache: KVCache | None,
    *,
    span: Span,
    block: int | None = None,
) -> tuple[Float[Array, "B W H D"], KVCache | None]:
    """Writes the window into the cache and attends; without a cache the window is all there is."""
    if cache is None:
        return attend_whole(queries, keys, values, span=span), None
    cache = write(cache, keys, values, span.positions)
    attended = verify_attention(
        queries,
        *cache,
        first=span.first,
        last=span.last,
        newest=span.newest,
        ancestors=span.ancestors,
        block=block,
    )
    return attended, cache


def attend_whole(
    queries: Float[Array, "B S H D"],
    keys: Float[Array, "B S K D"],
    values: Float[Array, "B S K D"],
    *,
    span: Span,
) -> Float[Array, "B S H D"]:
    """Attention within whole texts, whose positions count from 0.

    Under a sliding window, queries are taken in runs of that many, each against its own run of keys
    and the one before: the work grows with the text, not with its square.
    """
    length, window = queries.shape[1], span.window
    if window is None or length <= 2 * window:
        keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)
        seen = {"first": span.first, "last": span.last, "newest": span.newest}
        return verify_attention(queries, keys, values, **seen)
    runs = -(-length // window)

    def cut(x):
        x = jnp.pad(x, ((0, 0), (0, runs * window - length), *((0, 0),) * (x.ndim - 2)))
        return x.reshape(-1, runs, window, *x.shape[2:])

    def fold(x):
        return x.reshape(-1, *x.shape[2:])

    def with_the_run_before(x):
        x = cut(x)
        before = jnp.pad(x[:, :-1], ((0, 0), (1, 0), *((0, 0),) * (x.ndim - 2)))
        return fold(jnp.concatenate([before, x], axis=2)).swapaxes(1, 2)

    begin = (jnp.arange(runs)[:, None] - 1) * window  # position of each run's first key
    attended = verify_attention(
        fold(cut(queries)),
        with_the_run_before(keys),
        with_the_run_before(values),
        first=fold(cut(span.first) - begin),
        last=fold(cut(span.last) - begin),
        newest=jnp.full(keys.shape[0] * runs, 2 * window - 1),
    )
    return attended.reshape(-1, runs * window, *attended.shape[2:])[:, :length]
