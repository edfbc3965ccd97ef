"""Samples the blocks that BLT-D trains on, and masks bytes in them.

Source: Fast BLT (arXiv 2605.08044, section 2.1). There is one block at the start of every patch
except the first, and each of its bytes is masked with probability t ~ U(0, 1). These extensions of
the paper are off by default: several block sizes for one model, blocks that start within a patch
(as they do during decoding), a separate t for every block, and training on a subset of the blocks.
"""

import dataclasses
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from bytelax import vocab
from bytelax.models.block_attention import Blocks


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorruptionConfig:
    """How blocks are sampled from a text and masked.

    Attributes:
      block_sizes: possible numbers of bytes in a block; one of them is sampled for each text.
      mid_patch: share of the blocks that start at a random position instead of at a patch.
      smallest_t: lower bound of t ~ U(smallest_t, 1). The loss divides by t.
      t_for_each: whether t is sampled once for each "text" (the paper) or for each "block".
      most_blocks: number of blocks to sample at random from each text; None takes all.
    """

    block_sizes: tuple[int, ...] = (4,)
    mid_patch: float = 0.0
    smallest_t: float = 0.05
    t_for_each: Literal["text", "block"] = "text"
    most_blocks: int | None = None

    def __post_init__(self):
        if not self.block_sizes or min(self.block_sizes) < 1:
            raise ValueError(f"block_sizes must be positive, got {self.block_sizes}")
        if not 0 <= self.mid_patch <= 1:
            raise ValueError(f"mid_patch is a share, 0..1, got {self.mid_patch}")
        if not 0 < self.smallest_t < 1:
            raise ValueError(f"smallest_t must lie in (0, 1), got {self.smallest_t}")
        if self.most_blocks is not None and self.most_blocks < 1:
            raise ValueError(f"most_blocks must be at least 1, got {self.most_blocks}")


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
