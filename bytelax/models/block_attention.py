"""Which bytes a masked block sees in training: the attention of BLT-D's decoder.

Source: Fast BLT (arXiv 2605.08044, section 2.1.2). In decoding a block is a window whose cells see
up to the block's end; here many blocks of one text, overlapping or not, share the clean half.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Bool, Float, Int

from bytelax.models import kv_cache
from bytelax.models.kv_cache import Span


class Blocks(NamedTuple):
    """Runs of consecutive bytes of each text, some of them masked."""

    ids: Int[Array, "B M C"]  # MASK where the byte is to be filled in
    start: Int[Array, "B M"]  # position of the first cell, at least 1 and at most S
    length: Int[Array, "B M"]  # number of cells in use, 0..C

    def positions(self) -> Int[Array, "B M C"]:
        return self.start[..., None] + jnp.arange(self.ids.shape[2])

    def there(self) -> Bool[Array, "B M C"]:
        return jnp.arange(self.ids.shape[2]) < self.length[..., None]


def attend(
    queries: Float[Array, "B T H D"],
    keys: Float[Array, "B T K D"],
    values: Float[Array, "B T K D"],
    cache: None,
    *,
    span: Span,
    blocks: Blocks,
) -> tuple[Float[Array, "B T H D"], None]:
    """Attention of S clean bytes followed by M blocks of C cells, T = S + M C.

    Args:
      queries, keys, values: rotated by position.
      cache: there is none.
      span: of the clean bytes, causal; its window holds for the cells too.
      blocks: the blocks.
    """
    length = span.positions.shape[1]
    clean = [x[:, :length] for x in (queries, keys, values)]
    cells = [x[:, length:] for x in (queries, keys, values)]
    attended = kv_cache.attend_whole(*clean, span=span)
    filled = _attend_cells(*cells, *clean[1:], span=span, blocks=blocks)
    return jnp.concatenate([attended, filled], axis=1), None


def _attend_cells(queries, keys, values, clean_keys, clean_values, *, span, blocks):
    """Each block against the clean bytes before it and then itself: one interval of both."""
    batch, number, size = blocks.ids.shape
    length = clean_keys.shape[1]
    reach = min(span.window or length, length)

    def with_the_bytes_before(cells, clean):
        cells = cells.reshape(batch, number, size, *cells.shape[2:])
        padded = jnp.pad(clean, ((0, 0), (reach, 0), (0, 0), (0, 0)))

        def before(row, start):  # padding moved position p to p + reach
            return jax.lax.dynamic_slice_in_dim(row, start, reach)

        before = jax.vmap(jax.vmap(before, (None, 0)))(padded, blocks.start)
        both = jnp.concatenate([before, cells], axis=2)
        return both.reshape(batch * number, *both.shape[2:]).swapaxes(1, 2)

    begin = blocks.start - reach  # position of the first key
    at_start = jnp.minimum(blocks.start, length - 1)
    first = jnp.take_along_axis(span.first, at_start, axis=1)[..., None]
    if span.window is not None:
        first = jnp.maximum(first, blocks.positions() - span.window + 1)
    first = jnp.broadcast_to(first, blocks.ids.shape) - begin[..., None]
    # An empty block attends to its first cell, so that its unused outputs are finite.
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
