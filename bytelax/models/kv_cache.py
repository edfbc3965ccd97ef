"""Key-value caches addressed by position, and spans of positions that queries attend to.

Position p is stored in slot `p % S`. Rejected bytes leave stale entries only in slots that the next
window overwrites or masks, so a rollback only changes lengths; nothing is copied or undone. With a
sliding attention window the cache is a ring, for which S >= attention window + decoding window
slots suffice.

On a TPU a cache consists of lines, [B, S, K D], that hold the heads of a slot side by side: written
as one piece, and read as they are by the kernel. A layout by head would be transposed for each of
the two, in every layer and every step. Other platforms store each head on its own, [B, K, S, D].
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
from bytelax_kernels import cross_attention, dispatch
from bytelax_kernels.append_attention import Projections, append_attention, slots_of
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Bool, Float, Int

from bytelax.models import ring
from bytelax.models.configs import TransformerConfig
from bytelax.models.pytree import pytree, static
from bytelax.pods.sharding import BATCH, Axes

BLOCK_KV = 256  # number of slots read at a time from caches that grow with the text


Stored = Float[Array, "B K S D"] | Float[Array, "B S KD"]


class KVCache(NamedTuple):
    """Keys and values of one layer, with S slots for positions: by head, or in lines."""

    keys: Stored
    values: Stored

    @property
    def in_lines(self) -> bool:
        """Whether the arrays are [B, S, K D]."""
        return self.keys.ndim == 3

    @property
    def slots(self) -> int:
        """S, the number of slots."""
        return self.keys.shape[-2]

    @property
    def logical_axes(self) -> Axes:
        """Logical axes of both arrays."""
        if self.in_lines:
            return (BATCH, None, "kv_head")
        return (BATCH, "kv_head", None, "head_dim")


class WholeKVCache(KVCache):
    """A cache that is not sharded by heads; the entropy model uses it."""

    @property
    def logical_axes(self) -> Axes:
        """Logical axes of both arrays."""
        return (BATCH, *(None,) * (self.keys.ndim - 1))


Caches = tuple[KVCache | None, ...]  # one per layer; None for layers whose attention does not run


@pytree
class Span:
    """The positions of a window of queries, and the positions each of them attends to.

    Attributes:
      positions: position of each query. -1 marks an absent query, which is not written to a cache.
      first: first position that each query attends to.
      last: last position that each query attends to, inclusive; its own position if causal.
      newest: latest position in the cache after the window is written.
      window: attention window, static: the maximum number of positions that a query attends to,
        its own included. None for no limit.
      ancestors: for a tree of queries, which entries of the window each query attends to in
        addition to `first..last`. None for a chain.
      turns: positions for the rotary phases if they differ from `positions`. The nodes of a tree
        are stored one after another, but their phases depend on their depth.
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
    """The span of causal attention: each query attends to positions up to its own.

    Args:
      positions: position of each query.
      window: attention window: the maximum number of positions attended to. None for no limit.
      first: positions before this one are masked, e.g. those of earlier documents.
    """
    lowest = jnp.zeros_like(positions) if window is None else positions - window + 1
    return Span(
        positions=positions,
        first=jnp.maximum(jnp.maximum(lowest, first), 0),
        last=positions,
        newest=positions.max(1),
        window=window,
    )


def with_block(span: Span, begin: int) -> Span:
    """The span in which the queries from index `begin` on are the cells of one block.

    Each of them attends to all cells, and before the block to what the first of them attends to: an
    attention window counts the positions before the block, and never cuts it.
    """
    in_block = jnp.arange(span.positions.shape[1]) >= begin
    return dataclasses.replace(
        span,
        first=jnp.where(in_block, span.first[:, begin : begin + 1], span.first),
        last=jnp.where(in_block, span.positions[:, -1:], span.last),
    )


def tree_span(
    start: Int[Array, " B"],
    ancestors: Bool[Array, "B W W"],
    *,
    window: int | None,
    first: Int[Array, "B W"] | int = 0,
) -> Span:
    """The span of tree attention: each node attends to the text, to its ancestors and to itself.

    Args:
      start: position of the root; the text is what comes before it.
      ancestors: `ancestors[b, i, j]` is whether node j is node i or an ancestor of it.
      window: as in `causal_span`, counted along the branch of each node.
      first: as in `causal_span`.
    """
    width = ancestors.shape[1]
    turns = start[:, None] + ancestors.sum(-1) - 1
    if window is not None:
        ancestors &= turns[:, :, None] - turns[:, None] < window
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
    """Copies the entries at positions `source` to positions `target`; a target of -1 is skipped."""

    def picked(buffer):
        found = _at(buffer, source)
        return found if cache.in_lines else found.swapaxes(1, 2)

    return write(cache, picked(cache.keys), picked(cache.values), target)


def zeros(
    config: TransformerConfig, *, batch: int, slots: int, dtype, kind: type[KVCache] = KVCache
) -> Caches:
    """Creates empty caches, one per layer. No two arrays share a buffer, so they can be donated."""
    heads, dim = config.kv_heads, config.head_dim
    in_lines = dispatch.platform() == "tpu"
    shape = (batch, slots, heads * dim) if in_lines else (batch, heads, slots, dim)
    layers = range(config.layers)
    return tuple(kind(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype)) for _ in layers)


def ring_slots(*, window: int | None, width: int, capacity: int) -> int:
    """Number of slots that a cache needs, rounded up to a multiple of 8.

    Kernels move caches in tiles of 8 slots.

    Args:
      window: attention window; None if queries attend to all positions.
      width: largest number of positions that are written beyond those attended to.
      capacity: largest number of positions in a text.
    """
    needed = capacity if window is None else min(window + width, capacity)
    return -(-needed // 8) * 8


def write(
    cache: KVCache,
    keys: Float[Array, "B W *heads"],
    values: Float[Array, "B W *heads"],
    positions: Int[Array, "B W"],
) -> KVCache:
    """Writes keys and values to the slots of their positions; position -1 is not written."""

    if not cache.in_lines:
        slots = slots_of(positions, cache.slots)
        return type(cache)(*cross_attention.write(cache, (keys, values), slots))

    def put(buffer, new):
        return ring.put(buffer, new.reshape(*positions.shape, -1), positions)

    return cache._replace(keys=put(cache.keys, keys), values=put(cache.values, values))


def resize(cache: KVCache, newest: Int[Array, " B"], slots: int) -> KVCache:
    """Copies the latest `slots` positions of a cache to a ring of `slots` slots.

    Args:
      cache: the cache.
      newest: latest position in it.
      slots: number of slots of the result.
    """
    if cache.slots == slots:
        return cache
    return type(cache)(*(_at(buffer, ring.latest(newest, slots)) for buffer in cache))


def _at(buffer: Stored, positions: Int[Array, "B N"]) -> Array:
    """The entries of these positions, with the axes of `buffer`."""
    if buffer.ndim == 3:
        return ring.at(buffer, positions)
    slot = positions % buffer.shape[2]
    return jnp.take_along_axis(buffer, slot[:, None, :, None], axis=2)


def attend(
    projections: Projections,
    cache: KVCache | None,
    *,
    span: Span,
    block_kv: int | None = None,
) -> tuple[Float[Array, "B W H D"], KVCache | None]:
    """Writes a window to the cache and attends to the cache; without a cache, to the window itself.

    Args:
      projections: queries, keys and values of the window.
      cache: cache of the text before the window; None for whole texts.
      span: positions of the window and what each of them attends to.
      block_kv: as in `verify_attention`.

    Returns:
      The attended values, and the cache with the window written to it.
    """
    if cache is None:
        return attend_whole(*projections.rotated(), span=span), None
    sight: dict[str, Any] = {
        "first": span.first,
        "last": span.last,
        "newest": span.newest,
        "ancestors": span.ancestors,
    }
    if cache.in_lines:
        queries, keys, values = projections.rotated()
        cache = write(cache, keys, values, span.positions)
        return verify_attention(queries, *cache, **sight, block_kv=block_kv), cache
    attended, *written = append_attention(
        projections, *cache, positions=span.positions, **sight, block_kv=block_kv
    )
    return attended, type(cache)(*written)


def attend_whole(
    queries: Float[Array, "B S H D"],
    keys: Float[Array, "B S K D"],
    values: Float[Array, "B S K D"],
    *,
    span: Span,
) -> Float[Array, "B S H D"]:
    """Attention within whole texts, whose positions start at 0.

    With a sliding window, queries are split into runs of the window's length, and each run is
    scored only against its own keys and those of the run before. The cost is then linear in the
    length of the text instead of quadratic.
    """
    length, window = queries.shape[1], span.window
    if window is None or length <= 2 * window:
        keys, values = keys.swapaxes(1, 2), values.swapaxes(1, 2)
        return verify_attention(
            queries, keys, values, first=span.first, last=span.last, newest=span.newest
        )
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
