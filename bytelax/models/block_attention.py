"""Attention of masked blocks in the training of BLT-D's decoder.

Source: Fast BLT (arXiv 2605.08044, section 2.1.2). During decoding, a block is a window whose cells
all attend up to the end of the block. During training, many blocks of one text, which may overlap,
attend to the same clean bytes.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels.append_attention import Projections
from bytelax_kernels.verify_attention.inputs import precision
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

    Scores are computed for all clean bytes, and masked. To gather the keys that a block reaches
    takes fewer operations, but with its gradient three times as long: on one thread, for 80 blocks
    of four, texts of 256 bytes and a window of 128.
    """
    batch, number, size = blocks.ids.shape
    length, kv_heads, dim = clean_keys.shape[1:]

    position = jnp.arange(length)
    at_start = jnp.minimum(blocks.start, length - 1)
    first = jnp.take_along_axis(span.first, at_start, axis=1)
    if span.window is not None:  # a block may begin after the last clean byte
        first = jnp.maximum(first, blocks.start - span.window + 1)
    before = (position >= first[..., None]) & (position < blocks.start[..., None])
    # An empty block attends to its first cell, which keeps its unused outputs finite.
    within = jnp.arange(size) < jnp.maximum(blocks.length, 1)[..., None]
    seen = jnp.concatenate([before, within], axis=-1)[:, :, None, None, None]

    grouped = queries.reshape(batch, number, size, kv_heads, -1, dim)
    own_keys, own_values = (x.reshape(batch, number, size, kv_heads, dim) for x in (keys, values))
    product = functools.partial(
        jnp.einsum, precision=precision(keys.dtype), preferred_element_type=jnp.float32
    )
    scores = jnp.concatenate(
        [
            product("bmckgd,bskd->bmckgs", grouped, clean_keys),
            product("bmckgd,bmekd->bmckge", grouped, own_keys),
        ],
        axis=-1,
    )
    weights = jax.nn.softmax(scores * dim**-0.5, where=seen).astype(values.dtype)
    attended = product("bmckgs,bskd->bmckgd", weights[..., :length], clean_values)
    attended += product("bmckge,bmekd->bmckgd", weights[..., length:], own_values)
    return attended.astype(queries.dtype).reshape(queries.shape)
