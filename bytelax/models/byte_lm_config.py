"""Configuration of a byte transformer."""

import dataclasses

from bytelax import vocab
from bytelax.models.heads_config import HeadsConfig
from bytelax.models.transformer_config import TransformerConfig, check_max_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteLMConfig:
    """Configuration of a byte transformer.

    Attributes:
      trunk: the stack of blocks.
      max_bytes: longest text that the model supports, BOS included.
      mask_documents: whether bytes do not attend past the latest EOS before them.
      vocab_size: number of ids; 260 in released models.
      heads: prediction heads for drafting; None if there are none.
    """

    trunk: TransformerConfig
    max_bytes: int = 8192
    mask_documents: bool = False
    vocab_size: int = vocab.SIZE
    heads: HeadsConfig | None = None

    def __post_init__(self):
        check_max_bytes(self.max_bytes)
        if self.heads is not None:
            self.heads.check(self.trunk)
            if self.heads.draft.latent:
                raise ValueError("a byte transformer has no latents: draft.latent must be False")
            if self.heads.block_table:
                raise ValueError("a byte transformer fills in no masked bytes: no block_table")

    @property
    def state_dims(self) -> tuple[int, ...]:
        """Widths of the states that `heads` read: of an embedding, and behind each block."""
        return (self.trunk.dim,) * (self.trunk.layers + 1)
