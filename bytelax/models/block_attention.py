"""Attention of masked blocks in the training of BLT-D's decoder.

Source: Fast BLT (arXiv 2605.08044, section 2.1.2). During decoding, a block is a window whose cells
all attend up to the end of the block. During training, many blocks of one text, which may overlap,
attend to the same clean bytes.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels.append_attention import Projections
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import kv_cache
from bytelax.models.kv_cache import Span


class Blocks(NamedTuple):
    """M blocks of up to C consecutive bytes from each text, with some bytes masked."""

    ids: Int[Array, "B M C"]  # MASK where the byte has to be predicted
    start: Int[Array, "B M"]  # position of the first cell, 1..S
    length: Int[Array, "B M"]  # number of cells in use, 0..C

    def positions(self) -> Int[Array, "B M C"]:
        """Position of each cell in its text."""
        return self.start[..., None] + jnp.arange(self.ids.shape[2])


def attend(
    projections: Projections,
    cache: None,
    *,
    span: Span,
    blocks: Blocks,
) -> tuple[Float[Array, "B T H D"], None]:
    """Attention over S clean bytes followed by M blocks of C cells, so that T = S + M C.

    Args:
      projections: queries, keys and values of the T entries.
      cache: unused; always None.
      span: causal span of the clean bytes. Its sliding window applies to the clean bytes before a
        block as well, as seen from its first cell, and never cuts the block.
      blocks: the blocks.

    Returns:
      The attended values, and None in place of a cache.
    """
    length = span.positions.shape[1]
    entries = projections.rotated()
    clean, cells = [x[:, :length] for x in entries], [x[:, length:] for x in entries]
    attended = kv_cache.attend_whole(*clean, span=span)
    filled = attend_cells(*cells, *clean[1:], span=span, blocks=blocks)
    return jnp.concatenate([attended, filled], axis=1), None


def attend_cells(
    queries: Float[Array, "B Q H D"],
    keys: Float[Array, "B Q K D"],
    values: Float[Array, "B Q K D"],
    clean_keys: Float[Array, "B S K D"],
    clean_values: Float[Array, "B S K D"],
    *,
    span: Span,
    blocks: Blocks,
) -> Float[Array, "B Q H D"]:
    """Attends from each block to the clean bytes before it and to the block itself.

    The clean bytes and the cells are concatenated, so that what a cell sees is one interval.
    """
    batch, number, size = blocks.ids.shape
    length = clean_keys.shape[1]
    reach = min(span.window or length, length)

    def with_the_bytes_before(cells, clean):
        cells = cells.reshape(batch, number, size, *cells.shape[2:])
        padded = jnp.pad(clean, ((0, 0), (reach, 0), (0, 0), (0, 0)))

        def reached(row, start):  # padding moved position p to p + reach
            return jax.lax.dynamic_slice_in_dim(row, start, reach)

        before = jax.vmap(jax.vmap(reached, (None, 0)))(padded, blocks.start)
        both = jnp.concatenate([before, cells], axis=2)
        return both.reshape(batch * number, *both.shape[2:]).swapaxes(1, 2)

    begin = blocks.start - reach  # position of the first key
    at_start = jnp.minimum(blocks.start, length - 1)
    first = jnp.take_along_axis(span.first, at_start, axis=1)[..., None]
    if span.window is not None:  # a block may begin after the last clean byte
        first = jnp.maximum(first, blocks.start[..., None] - span.window + 1)
    first = jnp.broadcast_to(first, blocks.ids.shape) - begin[..., None]
    # An empty block attends to its first cell, which keeps its unused outputs finite.
    last = reach + jnp.maximum(blocks.length, 1) - 1
    attended = verify_attention(
        queries.reshape(batch * number, size, *queries.shape[2:]),
        with_the_bytes_before(keys, clean_keys),
        with_the_bytes_before(values, clean_values),
        first=first.reshape(batch * number, size),
        last=jnp.repeat(last.reshape(-1, 1), size, axis=1),
        newest=jnp.full(batch * number, reach + size - 1),
    )
    return attended.reshape(queries.shape)
