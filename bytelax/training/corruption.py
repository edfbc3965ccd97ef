"""Samples the blocks that BLT-D trains on, and masks bytes in them.

Source: Fast BLT (arXiv 2605.08044, section 2.1). There is one block at the start of every patch
except the first, and each of its bytes is masked with probability t ~ U(0, 1). These extensions of
the paper are off by default: several block sizes for one model, blocks that start within a patch
(as they do during decoding), a separate t for every block, and training on a subset of the blocks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.models.block_attention import Blocks
from bytelax.training.configs import CorruptionConfig


class Corrupted(NamedTuple):
    """The masked blocks of a batch and their targets."""

    blocks: Blocks
    targets: Int[Array, "B M C"]  # ids before masking
    masked: Bool[Array, "B M C"]  # whether a cell is in use and masked
    t: Float[Array, "B M"]  # masking probability
    on_boundary: Bool[Array, "B M"]  # whether the block starts at a patch boundary
    patches: Int[Array, " B"]  # number of blocks in the paper's objective, without sampling


def corrupt(
    key: Key[Array, ""],
    ids: Int[Array, "B L"],
    closes: Bool[Array, "B S"],
    *,
    config: CorruptionConfig,
) -> Corrupted:
    """Samples and masks the blocks of a batch.

    Args:
      key: PRNG key; it is consumed.
      ids: texts of S = L - 1 bytes and the byte after each of them, which blocks may include.
      closes: whether each byte of the texts is the last of its patch.
      config: how to sample and mask.
    """
    which_key, place_key, size_key, t_key, mask_key = jax.random.split(key, 5)
    batch, length = closes.shape
    number = min(config.most_blocks or length, length)
    start, on_boundary, there = _starts(which_key, place_key, closes, number, config.mid_patch)

    widest = max(config.block_sizes)
    sizes = jax.random.choice(size_key, jnp.array(config.block_sizes), (batch, 1))
    cells = jnp.where(there, jnp.minimum(sizes, length + 1 - start), 0)
    place = jnp.minimum(start[..., None] + jnp.arange(widest), length)
    targets = jax.vmap(lambda row, at: row[at])(ids, place)

    draws = number if config.t_for_each == "block" else 1
    t = jax.random.uniform(t_key, (batch, draws), minval=config.smallest_t)
    t = jnp.broadcast_to(t, (batch, number))
    hidden = jax.random.uniform(mask_key, targets.shape) < t[..., None]
    inside = jnp.arange(widest) < cells[..., None]
    masked = hidden & inside & (targets != vocab.BOE)  # BOE pads
    return Corrupted(
        Blocks(jnp.where(masked, vocab.MASK, targets), start, cells),
        targets,
        masked,
        t,
        on_boundary & there,
        closes.sum(1),
    )


def _starts(which_key, place_key, closes, number, mid_patch):
    """Samples the position of each block, whether it is at a patch boundary, and whether in use."""
    length = closes.shape[1]
    # Byte p + 1 starts a patch if byte p closes one. Hence the first patch, at 0, gets no block.
    order = jnp.where(closes, jax.random.uniform(which_key, closes.shape), -1)
    drawn, last = jax.lax.top_k(order, number)
    start, there = last + 1, drawn >= 0
    share_key, anywhere_key = jax.random.split(place_key)
    moved = there & (jax.random.uniform(share_key, start.shape) < mid_patch)
    anywhere = jax.random.randint(anywhere_key, start.shape, 1, length + 1)
    start = jnp.where(there, jnp.where(moved, anywhere, start), 1)
    on_boundary = jnp.take_along_axis(closes, start - 1, axis=1)
    return start, on_boundary, there
