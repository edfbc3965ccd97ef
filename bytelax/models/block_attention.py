"""Which bytes a masked block sees in training: the attention of BLT-D's decoder.

Source: Fast BLT (arXiv 2605.08044, section 2.1.2). In decoding a block is a window whose cells see
up to the block's end; here many blocks of one text, overlapping or not, share the clean half.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Bool, Float, Int

from bytelax.models.kv_cache import Span


class Blocks(NamedTuple):
    """Runs of consecutive bytes of each text, some of them masked."""

    ids: Int[Array, "B M C"]  # MASK where the byte is to be filled in
    start: Int[Array, "B M"]  # position of the first cell, at least 1 and at most S
    length: Int[Array, "B M"]  # cells that are there, 0..C

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
    window: int | None,
) -> tuple[Float[Array, "B T H D"], None]:
    """Attention of S clean bytes followed by M blocks of C cells, T = S + M C.

    Args:
      queries, keys, values: rotated by position.
      cache: there is none.
      span: of the clean bytes, causal.
      blocks: the blocks.
      window: bytes a cell sees before itself, itself included.
    """
    length = span.positions.shape[1]
    clean_keys, clean_values = (x[:, :length].swapaxes(1, 2) for x in (keys, values))
    clean = verify_attention(
        queries[:, :length],
        clean_keys,
        clean_values,
        first=span.first,
        last=span.last,
        newest=span.newest,
    )
    cells = _attend_cells(
        *(x[:, length:] for x in (queries, keys, values)),
        clean_keys,
        clean_values,
        span=span,
        blocks=blocks,
        window=window,
    )
    return jnp.concatenate([clean, cells], axis=1), None


def _attend_cells(queries, keys, values, clean_keys, clean_values, *, span, blocks, window):
    """One softmax over the clean bytes before the block and the block itself."""
    batch, count, heads, dim = queries.shape
    _, number, size = blocks.ids.shape
    kv_heads = keys.shape[2]
    queries = queries.reshape(batch, number, size, kv_heads, heads // kv_heads, dim)
    keys, values = (x.reshape(batch, number, size, kv_heads, dim) for x in (keys, values))
    before = jnp.einsum(
        "bmckgd,bksd->bkgmcs", queries, clean_keys, preferred_element_type=jnp.float32
    )
    within = jnp.einsum("bmckgd,bmekd->bkgmce", queries, keys, preferred_element_type=jnp.float32)

    first = jnp.minimum(blocks.start, clean_keys.shape[2] - 1)
    document = jnp.take_along_axis(span.first, first, axis=1)[:, :, None, None]
    position = blocks.positions()[..., None]
    clean = jnp.arange(clean_keys.shape[2])
    sees = (clean < blocks.start[:, :, None, None]) & (clean >= document)
    if window is not None:
        sees &= clean > position - window
    there = jnp.broadcast_to(blocks.there()[:, :, None], (batch, number, size, size))
    mask = jnp.concatenate([jnp.broadcast_to(sees, (*blocks.ids.shape, len(clean))), there], -1)
    scores = jnp.concatenate([before, within], axis=-1) * dim**-0.5
    # A block that is not there attends to its own cells, for finite numbers that nobody reads.
    mask |= (blocks.length == 0)[:, :, None, None]
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, -jnp.inf), axis=-1)
    weights = weights.astype(values.dtype)
    length = clean_keys.shape[2]
    attended = jnp.einsum("bkgmcs,bksd->bmckgd", weights[..., :length], clean_values)
    attended += jnp.einsum("bkgmce,bmekd->bmckgd", weights[..., length:], values)
    return attended.reshape(batch, count, heads, dim)
