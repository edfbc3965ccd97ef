"""Configuration of prediction heads."""

import dataclasses

from bytelax.models.draft_config import DraftConfig
from bytelax.models.transformer_config import TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsConfig:
    """Which prediction heads a model has. The state at depth n is the output of n blocks.

    Attributes:
      exits: depths with an early-exit head.
      bytes_ahead: number of multi-byte heads, each of which predicts one byte after the next one.
      correction: whether the multi-byte heads add a table indexed by the byte before the predicted
        one.
      two_byte: depths whose state a two-byte-ahead head reads.
      draft_layer: depths of the states, low, middle and high, that a draft layer fuses; None for no
        draft layer.
      draft_block: the same of a draft block.
      block_table: whether a BLT-D has a table with which the bytes of a block depend on the byte
        before.
      draft: sizes of the draft layer and the draft block, and rank of the table.
    """

    exits: tuple[int, ...] = ()
    bytes_ahead: int = 0
    correction: bool = False
    two_byte: tuple[int, ...] = ()
    draft_layer: tuple[int, ...] | None = None
    draft_block: tuple[int, ...] | None = None
    block_table: bool = False
    draft: DraftConfig = DraftConfig()

    def fused(self, depths: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the depths of all states that are fused; 0 is the latent of a BLT."""
        return (0, *depths) if self.draft.latent else depths

    def device_shard(self, trunk: TransformerConfig, devices: int) -> "HeadsConfig":
        """Returns the heads of one of several devices, for a trunk that is not yet split."""
        return dataclasses.replace(self, draft=self.draft.device_shard(trunk, devices))

    def check(self, trunk: TransformerConfig) -> None:
        """Raises ValueError if the heads do not fit the trunk, or fields conflict."""
        layers = trunk.layers
        for name, depths, most in (
            ("exits", self.exits, layers - 1),
            ("two_byte", self.two_byte, layers),
            ("draft_layer", self.draft_layer or (), layers),
            ("draft_block", self.draft_block or (), layers),
        ):
            for depth in depths:
                if not 1 <= depth <= most:
                    raise ValueError(
                        f"heads.{name} must lie in 1..{most}, depths of {layers} layers, got "
                        f"{depth}"
                    )
        if self.bytes_ahead < 0:
            raise ValueError(f"bytes_ahead must be at least 0, got {self.bytes_ahead}")
        if self.correction and not self.bytes_ahead:
            raise ValueError("the correction belongs to multi-byte heads; give bytes_ahead")
        if () in (self.draft_layer, self.draft_block):
            raise ValueError("draft_layer and draft_block need a state to read: give a depth")
        if self.draft.confidence and not (self.draft_layer or self.draft_block):
            raise ValueError("draft.confidence belongs to a draft layer or a draft block")
        if self.block_table and self.draft.table_rank == 0:
            raise ValueError("a block_table of rank 0 is no table: leave draft.table_rank out")
        self.draft.stack(trunk, layers=self.draft.layers)
