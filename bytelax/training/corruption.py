"""Which blocks BLT-D trains on, and what is masked in them.

Source: Fast BLT (arXiv 2605.08044, section 2.1): one block at the start of every patch but the
first, each byte masked with probability t ~ U(0, 1). Beyond the paper, all off by default: several
block sizes for one model, blocks that start mid-patch (as they do in decoding), a t of its own for
every block, and a subset of the blocks.
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
    """How a text is corrupted.

    Attributes:
      block_sizes: bytes in a block; each text draws one of them.
      mid_patch: share of the blocks that start anywhere instead of at a patch.
      smallest_t: t is drawn from (smallest_t, 1); the loss divides by it.
      t_for_each: one t a "text" (the paper) or a "block".
      most_blocks: a random subset of that many blocks a text; None takes all.
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
    """Blocks of a batch and what to predict in them."""

    blocks: Blocks
    targets: Int[Array, "B M C"]  # the bytes themselves
    masked: Bool[Array, "B M C"]  # cells that are there and masked
    t: Float[Array, "B M"]
    on_boundary: Bool[Array, "B M"]  # whether the block starts at a patch
    patches: Int[Array, " B"]  # blocks that the paper's objective has


def corrupt(
    key: Key[Array, ""],
    ids: Int[Array, "B L"],
    closes: Bool[Array, "B S"],
    *,
    config: CorruptionConfig,
) -> Corrupted:
    """Draws the blocks of a batch.

    Args:
      key: consumed.
      ids: the texts of S = L - 1 bytes and the byte after them; a block may reach up to that one.
      closes: whether each byte of the texts is the last of its patch.
      config: what to draw.
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
    masked = hidden & inside & (targets != vocab.BOE)  # BOE is padding
    return Corrupted(
        Blocks(jnp.where(masked, vocab.MASK, targets), start, cells),
        targets,
        masked,
        t,
        on_boundary & there,
        closes.sum(1),
    )


def _starts(which_key, place_key, closes, number, mid_patch):
    """Position of each block, whether it starts a patch, and whether it is there."""
    length = closes.shape[1]
    # Byte p + 1 starts a patch where byte p closes one; the first patch, at 0, is nobody's.
    order = jnp.where(closes, jax.random.uniform(which_key, closes.shape), -1)
    drawn, last = jax.lax.top_k(order, number)
    start, there = last + 1, drawn >= 0
    share_key, anywhere_key = jax.random.split(place_key)
    moved = there & (jax.random.uniform(share_key, start.shape) < mid_patch)
    anywhere = jax.random.randint(anywhere_key, start.shape, 1, length + 1)
    start = jnp.where(there, jnp.where(moved, anywhere, start), 1)
    on_boundary = jnp.take_along_axis(closes, start - 1, axis=1)
    return start, on_boundary, there
