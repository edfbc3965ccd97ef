"""Configurations of the models and their parts.

Like every `configs.py`, this file imports no JAX, so that the command line can show its flags at
once.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Optional, TypeVar

from bytelax import vocab
from bytelax.checked import Checked, check_least
from bytelax.options import HeadsConfig

if TYPE_CHECKING:
    T = TypeVar("T")

    class Filled(Generic[T]):
        """A field that takes T or None, and holds T once `__post_init__` has replaced None."""

        def __get__(self, instance: object, owner: type) -> T: ...
        def __set__(self, instance: object, value: T | None) -> None: ...

else:
    Filled = Optional

UNFILLED: Any = None

LONGEST = 1 << 24  # rotary phases are float32, which cannot represent every larger integer


def check_max_bytes(max_bytes: int) -> None:
    """Raises ValueError if `max_bytes` is not a context length that bytelax supports."""
    if not 2 <= max_bytes <= LONGEST:
        raise ValueError(f"max_bytes must lie in 2..{LONGEST}, got {max_bytes}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RopeScaling(Checked):
    """How rotary frequencies are changed for longer texts than a model was first trained on.

    Attributes:
      kind: "linear" divides all frequencies by `factor`; "llama3" divides the low ones (Llama 3.1).
      factor: divides frequencies.
      original_positions: longest text of the first training; unused by "linear".
      low_freq_factor, high_freq_factor: numbers of turns within `original_positions`; a frequency
        with more is kept in part, or entirely. For "llama3".
    """

    kind: Literal["linear", "llama3"]
    factor: float
    original_positions: int = 8192
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0

    def __post_init__(self):
        super().__post_init__()
        numbers = [x for x in vars(self).values() if type(x) in (int, float)]
        if not all(0 < x < math.inf for x in numbers):
            raise ValueError(f"the numbers of a rotary scaling must be positive: {self}")
        if self.kind == "llama3" and self.low_freq_factor >= self.high_freq_factor:
            raise ValueError("low_freq_factor must be less than high_freq_factor")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig(Checked):
    """Sizes of a stack of transformer blocks. A size that is None is replaced by its default.

    Attributes:
      dim: width of the residual stream.
      layers: number of blocks.
      heads: number of query heads; by default `dim // 64`, at least 1.
      kv_heads: number of key and value heads, a divisor of `heads`; by default equal to `heads`.
      head_dim: width of a head, an even number; by default `dim // heads`.
      ffn_dim: hidden width of the SwiGLU; by default 8/3 of `dim`, rounded up to a multiple of 64.
      window: size of the sliding attention window: the number of positions a query attends to, its
        own included. None attends to all earlier positions.
      rope_theta: base of the rotary frequencies.
      norm_eps: added to the mean square in each RMSNorm.
      biases: which maps of the self-attention have one: "qkv" those of queries, keys and values,
        "all" its output too.
      qk_norm: whether queries and keys have an RMSNorm each, over the width of a head.
      rope_scaling: how rotary frequencies are changed for long texts; None leaves them.
    """

    dim: int
    layers: int
    heads: Filled[int] = UNFILLED
    kv_heads: Filled[int] = UNFILLED
    head_dim: Filled[int] = UNFILLED
    ffn_dim: Filled[int] = UNFILLED
    window: int | None = None
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5
    biases: Literal["none", "qkv", "all"] = "none"
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None

    def __post_init__(self):
        super().__post_init__()
        heads = max(self.dim // 64, 1) if self.heads is None else self.heads
        defaults = {
            "heads": heads,
            "kv_heads": heads,
            "head_dim": self.dim // max(heads, 1),
            "ffn_dim": -(-self.dim * 8 // 3 // 64) * 64,
        }
        for field, default in defaults.items():
            if vars(self)[field] is None:
                object.__setattr__(self, field, default)
        check_least(self, 1, "dim", "layers", *defaults, "window")
        for field in ("rope_theta", "norm_eps"):
            if not 0 < (value := vars(self)[field]) < math.inf:
                raise ValueError(f"{field} must be positive, got {value}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not divide among {self.kv_heads} kv_heads")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")

    def device_shard(self, devices: int) -> "TransformerConfig":
        """The config of one tensor-parallel shard: heads and hidden units divided by `devices`."""
        return dataclasses.replace(
            self,
            heads=self.heads // devices,
            kv_heads=self.kv_heads // devices,
            ffn_dim=self.ffn_dim // devices,
        )


PRIMES = (
    1000000007, 5915587277, 1500450271, 3267000013, 5754853343, 4093082899,
    9576890767, 3628273133, 2860486313, 5463458053, 3367900313,
)  # fmt: skip

_MAX_VOCAB = 1 << 24  # `_remainder` works byte by byte: remainder * 256 must fit in 32 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class HashConfig(Checked):
    """Hash n-gram tables: `functions * len(groups)` hashes, each into `vocab` rows.

    Attributes:
      groups: n-gram lengths, in ids.
      vocab: number of rows of each table.
      functions: number of hash functions for each n-gram length.
    """

    groups: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    vocab: int = 500_002
    functions: int = 1

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.vocab < _MAX_VOCAB:
            raise ValueError(f"hash vocab {self.vocab} is outside 1..{_MAX_VOCAB - 1}")
        if self.functions > len(PRIMES):
            raise ValueError(f"at most {len(PRIMES)} hash functions, got {self.functions}")
        if any(not 1 <= group <= 128 for group in self.groups):
            raise ValueError(f"hash group sizes must lie in 1..128, got {self.groups}")

    @property
    def rows(self) -> int:
        """Number of rows of the fused table, which holds the tables of all hashes."""
        return self.functions * len(self.groups) * self.vocab

    @property
    def history(self) -> int:
        """Number of ids before the current one that the longest n-gram covers."""
        return max(self.groups, default=1) - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchingConfig(Checked):
    """The rule that divides a text into patches.

    Attributes:
      mode: "entropy" uses the entropy model; "stride" ends a patch every `stride` bytes; "byte"
        makes every byte a patch.
      threshold: threshold in nats. Byte i + 1 starts a patch if e_i, the entropy of its predicted
        distribution, exceeds the threshold.
      monotonicity: compare e_i - e_(i-1) with `threshold` instead; `threshold_add` is then ignored.
      threshold_add: second threshold in nats. Byte i + 1 then starts a patch only if both
        e_i > threshold and e_i - e_(i-1) > threshold_add.
      max_patch_length: longer patches are cut into pieces of this many bytes; None does not cut.
      stride: number of bytes per patch in mode "stride".
    """

    mode: Literal["entropy", "stride", "byte"] = "entropy"
    threshold: float = 1.335442066192627
    monotonicity: bool = False
    threshold_add: float | None = None
    max_patch_length: int | None = None
    stride: int = 4

    def __post_init__(self):
        super().__post_init__()
        if not all(map(math.isfinite, (self.threshold, self.threshold_add or 0.0))):
            raise ValueError(f"patching thresholds must be finite, got {self.threshold}")
        check_least(self, 1, "max_patch_length", "stride")


class ModelConfig(Checked):
    """Base of the configs of models, and what those have that lack a part.

    A subclass is a frozen dataclass.

    Attributes:
      max_bytes: longest text that the model supports, BOS included.
      vocab_size: number of ids.
      trunk: the stack whose states prediction heads read.
      heads: sizes of these heads.
      mask_documents: whether bytes do not attend past the latest EOS before them.
      patching: the rule that divides a text into patches; None for a model without patches.
      patcher: the entropy model that the rule needs.
      block_size: longest block of masked bytes that the model was trained to fill in.
      bos, eos: whether the model knows a BOS and an EOS.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    max_bytes: int
    vocab_size: int
    trunk: TransformerConfig
    heads: HeadsConfig | None = None
    mask_documents: bool = False
    patching: PatchingConfig | None = None
    patcher: Optional["ByteLMConfig"] = None
    block_size: int = 0
    bos: bool = True
    eos: bool = True

    @property
    def depth(self) -> int:
        """Number of layers whose states drafters read; 1 in a model that does not show them."""
        return 1

    @property
    def state_dims(self) -> tuple[int, ...]:
        """Widths of the states that heads read, from the first layer to the last."""
        raise NotImplementedError(f"{type(self).__name__}.state_dims")

    @property
    def networks(self) -> HeadsConfig:
        """The sizes of `heads`; if there are none, those of networks that are all absent."""
        return self.heads or HeadsConfig()

    def without_idle_patcher(self) -> Any:
        """Returns the config without an entropy model that the patching rule does not use."""
        return self


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteLMConfig(ModelConfig):
    """Configuration of a byte transformer.

    Attributes:
      trunk: the stack of blocks.
      max_bytes: longest text that the model supports, BOS included.
      mask_documents: whether bytes do not attend past the latest EOS before them.
      vocab_size: number of ids; 260 in released models.
      heads: prediction heads for drafting; None if there are none.
      bos: whether the model knows a BOS. If not, nothing attends to the first position, so that a
        text is its bytes alone, and its first byte is predicted from nothing.
      eos: whether the model knows an EOS; if not, it never ends a text.
    """

    trunk: TransformerConfig
    max_bytes: int = 8192
    mask_documents: bool = False
    vocab_size: int = vocab.SIZE
    heads: HeadsConfig | None = None
    bos: bool = True
    eos: bool = True

    def __post_init__(self):
        super().__post_init__()
        check_max_bytes(self.max_bytes)
        if self.heads is not None:
            self.heads.check(self.trunk, blt=False)

    @property
    def unseen(self) -> int:
        """The last position that no byte attends to; -1 if there is none.

        A model without a BOS reads a text as if the first position were the EOS of another.
        """
        return -1 if self.bos else 0

    @property
    def depth(self) -> int:
        """Number of blocks."""
        return self.trunk.layers

    @property
    def state_dims(self) -> tuple[int, ...]:
        """Widths of the states that `heads` read: of an embedding, and after each block."""
        return (self.trunk.dim,) * (self.trunk.layers + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTSizes(Checked):
    """Sizes of a BLT, without its entropy model and its heads.

    Attributes:
      encoder, global_transformer, decoder: the three stacks. Attention windows count bytes in the
        encoder and the decoder, and patches in the global transformer.
      patching: the rule that divides a text into patches.
      hashing: the hash n-gram embeddings added to the encoder's byte embeddings.
      patch_vectors: k, the number of vectors that represent a patch in both cross-attentions.
      decoder_cross_attention: whether "all" layers of the decoder read the latent, or only the
        "first".
      decoder_input: "encoder" for the encoder's states (BLT as released), or "embedding" for the
        decoder's own byte embeddings (Fast BLT, arXiv 2605.08044, section 2.1.2), with which it
        runs without the encoder.
      mask_documents: whether bytes and patches do not attend past the latest EOS, which ends a
        document (Meta's code does this, transformers does not).
      max_bytes: longest text that the model supports, BOS included.
    """

    encoder: TransformerConfig
    global_transformer: TransformerConfig
    decoder: TransformerConfig
    patching: PatchingConfig
    hashing: HashConfig = HashConfig()
    patch_vectors: int = 2
    decoder_cross_attention: Literal["all", "first"] = "all"
    decoder_input: Literal["encoder", "embedding"] = "encoder"
    mask_documents: bool = False
    max_bytes: int = 4096

    def config(self, patcher: ByteLMConfig | None) -> "BLTConfig":
        """Returns the config of a BLT of these sizes with the given entropy model."""
        return BLTConfig(patcher=patcher, **vars(self))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTConfig(BLTSizes, ModelConfig):
    """Configuration of a Byte Latent Transformer: its sizes, and what follows.

    Attributes:
      patcher: the entropy model; None if `patching.mode` needs no entropies.
      block_size: longest block of masked bytes that the decoder was trained to fill in (BLT-D); 0
        if it was not trained to.
      vocab_size: number of ids; 260 in released models.
      heads: prediction heads, whose trunk is the local decoder; None for no heads.
    """

    patcher: ByteLMConfig | None = dataclasses.field()  # not the default of `ModelConfig`
    block_size: int = 0
    vocab_size: int = vocab.SIZE
    heads: HeadsConfig | None = None

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 0, "block_size")
        if self.block_size and self.decoder_input != "embedding":
            raise ValueError("block_size needs decoder_input='embedding': a MASK has no state")
        if self.patching.mode == "entropy" and self.patcher is None:
            raise ValueError("patching mode 'entropy' needs an entropy model: patcher is None")
        check_max_bytes(self.max_bytes)
        if self.patcher is not None and not self.patcher.bos:
            raise ValueError("an entropy model of a BLT reads the BOS: patcher.bos must be True")
        if self.patcher is not None and self.patcher.mask_documents != self.mask_documents:
            raise ValueError("the entropy model and the BLT must agree on mask_documents")
        if self.decoder_input == "encoder" and self.encoder.dim != self.decoder.dim:
            raise ValueError(
                f"a decoder of width {self.decoder.dim} cannot read encoder states of width "
                f"{self.encoder.dim}; use decoder_input='embedding'"
            )
        if self.heads is not None:
            self.heads.check(self.decoder, blt=True, block_size=self.block_size)

    def without_idle_patcher(self) -> Any:
        """As `ModelConfig.without_idle_patcher`."""
        return self if self.patching.mode == "entropy" else dataclasses.replace(self, patcher=None)

    @property
    def trunk(self) -> TransformerConfig:  # type: ignore[override]  # nobody writes to it
        """The stack that `heads` sit on."""
        return self.decoder

    @property
    def depth(self) -> int:
        """Number of layers of the decoder."""
        return self.decoder.layers

    @property
    def state_dims(self) -> tuple[int, ...]:
        """Widths of the states that `heads` read: of a latent, and after each decoder layer."""
        return (self.global_transformer.dim, *[self.decoder.dim] * self.decoder.layers)

    @property
    def decoder_cross_layers(self) -> int:
        """Number of decoder layers with cross-attention."""
        return self.decoder.layers if self.decoder_cross_attention == "all" else 1
