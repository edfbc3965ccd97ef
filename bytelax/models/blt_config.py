"""Configuration of a Byte Latent Transformer."""

import dataclasses
from typing import Literal

from bytelax import vocab
from bytelax.models.byte_lm_config import ByteLMConfig
from bytelax.models.hash_config import HashConfig
from bytelax.models.heads_config import HeadsConfig
from bytelax.models.patching_config import PatchingConfig
from bytelax.models.transformer_config import TransformerConfig, check_max_bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTConfig:
    """Configuration of a Byte Latent Transformer.

    Attributes:
      encoder, global_transformer, decoder: the three stacks. Attention windows count bytes in the
        encoder and the decoder, and patches in the global transformer.
      patching: the rule that divides a text into patches.
      patcher: the entropy model; None if `patching.mode` needs no entropies.
      hashing: the hash n-gram embeddings added to the encoder's byte embeddings.
      patch_vectors: k, the number of vectors that represent a patch in both cross-attentions.
      decoder_cross_attention: whether "all" layers of the decoder read the latent, or only the
        "first".
      decoder_input: "encoder" for the encoder's states (BLT as released), or "embedding" for the
        decoder's own byte embeddings (Fast BLT, arXiv 2605.08044, section 2.1.2), with which it
        runs without the encoder.
      mask_documents: whether bytes and patches do not attend past the latest EOS, which ends a
        document (Meta's code does this, transformers does not).
      block_size: longest block of masked bytes that the decoder was trained to fill in (BLT-D); 0
        if it was not trained to.
      max_bytes: longest text that the model supports, BOS included.
      vocab_size: number of ids; 260 in released models.
      heads: prediction heads, whose trunk is the local decoder; None for no heads.
    """

    encoder: TransformerConfig
    global_transformer: TransformerConfig
    decoder: TransformerConfig
    patching: PatchingConfig
    patcher: ByteLMConfig | None
    hashing: HashConfig = dataclasses.field(default_factory=HashConfig)
    patch_vectors: int = 2
    decoder_cross_attention: Literal["all", "first"] = "all"
    decoder_input: Literal["encoder", "embedding"] = "encoder"
    mask_documents: bool = False
    block_size: int = 0
    max_bytes: int = 4096
    vocab_size: int = vocab.SIZE
    heads: HeadsConfig | None = None

    def __post_init__(self):
        if self.block_size < 0:
            raise ValueError(f"block_size must not be negative, got {self.block_size}")
        if self.block_size and self.decoder_input != "embedding":
            raise ValueError("block_size needs decoder_input='embedding': a MASK has no state")
        if self.patching.mode == "entropy" and self.patcher is None:
            raise ValueError("patching mode 'entropy' needs an entropy model: patcher is None")
        check_max_bytes(self.max_bytes)
        if self.patcher is not None and self.patcher.mask_documents != self.mask_documents:
            raise ValueError("the patcher and the model must agree on mask_documents")
        if self.decoder_cross_attention not in ("all", "first"):
            raise ValueError(
                f"decoder_cross_attention {self.decoder_cross_attention!r} is not all or first"
            )
        if self.decoder_input not in ("encoder", "embedding"):
            raise ValueError(f"decoder_input {self.decoder_input!r} is not encoder or embedding")
        if self.decoder_input == "encoder" and self.encoder.dim != self.decoder.dim:
            raise ValueError(
                f"a decoder of width {self.decoder.dim} cannot read encoder states of width "
                f"{self.encoder.dim}; use decoder_input='embedding'"
            )
        if self.heads is not None:
            self.heads.check(self.decoder)
            if self.heads.exits or self.heads.two_byte:
                raise ValueError("exit and two-byte heads are for byte transformers alone")
            if self.heads.block_table and self.heads.draft.block_size > self.block_size:
                raise ValueError(
                    f"a block_table for {self.heads.draft.block_size} bytes needs a model that "
                    f"fills in as many (`bytelax train blt-d`), not {self.block_size}"
                )

    @property
    def trunk(self) -> TransformerConfig:
        """The stack that `heads` sit on."""
        return self.decoder

    @property
    def state_dims(self) -> tuple[int, ...]:
        """Widths of the states that `heads` read: of a latent, and behind each decoder layer."""
        return (self.global_transformer.dim, *[self.decoder.dim] * self.decoder.layers)

    @property
    def decoder_cross_layers(self) -> int:
        """Number of decoder layers with cross-attention."""
        return self.decoder.layers if self.decoder_cross_attention == "all" else 1
