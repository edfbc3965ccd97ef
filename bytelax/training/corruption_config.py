"""Configuration of the masked blocks that a BLT-D trains on."""

import dataclasses
from typing import Literal


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
