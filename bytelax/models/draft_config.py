"""Sizes of the draft layer and the draft block, which draft from hidden states of the model."""

import dataclasses

from bytelax.models.transformer_config import TransformerConfig

_SIZES = ("dim", "heads", "kv_heads", "head_dim", "ffn_dim", "window")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Sizes of a draft layer or draft block. A size that is None is that of the model's trunk.

    Attributes:
      dim, heads, kv_heads, head_dim, ffn_dim: sizes of the stack. If `dim` is set, the others that
        are None follow from it as in `TransformerConfig`.
      window: number of positions that a query attends to, its own included.
      layers: number of layers of a draft block; a draft layer has one.
      block_size: maximum number of bytes that a draft block or a block table is trained to draft in
        one pass.
      table_rank: rank of the draft block's table of the byte before, and of the block table; None
        is a full table with a row for each byte, 0 is no table.
      latent: whether the latest latent of a BLT is fused with the hidden states.
      confidence: whether both have a head that predicts how likely a byte will be accepted, so that
        drafts can end before it.
    """

    dim: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn_dim: int | None = None
    window: int | None = None
    layers: int = 1
    block_size: int = 8
    table_rank: int | None = None
    latent: bool = False
    confidence: bool = False

    def __post_init__(self):
        for name in ("layers", "block_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.table_rank is not None and self.table_rank < 0:
            raise ValueError(f"table_rank must be at least 0, got {self.table_rank}")

    def stack(self, trunk: TransformerConfig, *, layers: int) -> TransformerConfig:
        """Returns the sizes of a stack of `layers` layers for a model with this trunk."""
        own = {name: x for name in _SIZES if (x := getattr(self, name)) is not None}
        if self.dim is None:
            return dataclasses.replace(trunk, layers=layers, **own)
        shared = {name: getattr(trunk, name) for name in ("window", "rope_theta", "norm_eps")}
        return TransformerConfig(layers=layers, **(shared | own))

    def device_shard(self, trunk: TransformerConfig, devices: int) -> "DraftConfig":
        """Returns the sizes on one of several devices, which share the heads and hidden units."""
        shard = self.stack(trunk, layers=self.layers).device_shard(devices)
        return dataclasses.replace(self, **{name: getattr(shard, name) for name in _SIZES})
