"""The decoder-only byte transformer; also the network behind BLT's entropies."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.calculator import Sizes
from bytelax.models import entropy, kv_cache, layers
from bytelax.models.execution import Execution
from bytelax.models.heads import Heads, HeadsConfig
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Embedding, RMSNorm, head
from bytelax.models.transformer import Transformer
from bytelax.models.transformer_config import TransformerConfig, check_max_bytes
from bytelax.pods.sharding import TENSOR


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteLMConfig:
    """A byte transformer.

    Attributes:
      trunk: its blocks.
      max_bytes: longest text it is meant for, BOS included.
      mask_documents: bytes do not see past the latest EOS before them.
      vocab_size: ids; the released layout has 260.
      heads: what it can draft with beside its own output; None: nothing.
    """

    trunk: TransformerConfig
    max_bytes: int = 8192
    mask_documents: bool = False
    vocab_size: int = vocab.SIZE
    heads: HeadsConfig | None = None

    def __post_init__(self):
        check_max_bytes(self.max_bytes)
        if self.heads is not None:
            self.heads.check(self.trunk.layers)


class ByteLM(nn.Module):
    """Embedding, blocks, final norm, untied head."""

    config: ByteLMConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.embed = Embedding(c.vocab_size, c.trunk.dim, execution=execution)
        self.trunk = Transformer(c.trunk, execution)
        self.norm = RMSNorm(c.trunk.norm_eps)
        self.head = head(c.vocab_size, execution.precision)
        if c.heads is not None:
            self.heads = Heads(c.heads, c.trunk, c.vocab_size, execution)

    def __call__(self, ids: Int[Array, "B S"]) -> Float[Array, "B S V"]:
        """Next-byte logits after every position of whole texts, float32."""
        span = self.span(ids)
        hidden, _ = self.trunk(self.embed(ids), span=span)
        if self.is_initializing() and self.config.heads is not None:
            self.heads(hidden, ids, span)
        return self.logits(hidden)

    def predict(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[Float[Array, "B S V"], None]:
        """Next-byte logits of whole texts; there are no patches."""
        return self(ids), None

    def entropies(self, ids: Int[Array, "B S"]) -> Float[Array, "B S"]:
        """Next-byte entropies of whole texts, nats."""
        return entropy.next_byte_entropy(self(ids))

    @nn.nowrap
    def target(self) -> Any:
        """What decodes with this module, in `decode.Method`."""
        from bytelax.decode.targets.byte_lm import ByteLMTarget  # decoding builds on models

        return ByteLMTarget(self)

    @nn.nowrap
    def logical_axes(self) -> dict:
        """The logical axes of every parameter; see `pods.sharding`."""
        return layers.logical_axes(self)

    @nn.nowrap
    def device_shard(self, devices: int) -> "ByteLM":
        """The model as one of several devices runs it, which share its heads and hidden units.

        See `pods.per_device`.
        """
        if devices == 1:
            return self
        trunk = self.config.trunk.device_shard(devices)
        return self.clone(
            config=dataclasses.replace(self.config, trunk=trunk),
            execution=dataclasses.replace(self.execution, tensor_axis=TENSOR),
        )

    @nn.nowrap
    def weights_per_pass(self, params: dict, *, by_pass: bool = False) -> Sizes:
        """Number of weights that a pass reads, prediction heads and embeddings aside."""
        own = {name: part for name, part in params.items() if name != "heads"}
        return Sizes(decoder=layers.weights(own), encoder=0, global_=0)

    @nn.nowrap
    def cached_per_pass(self, context: int, *, bytes_per_patch: float | None = None) -> Sizes:
        """Number of keys and values that a pass reads of a row with `context` bytes."""
        return Sizes(decoder=self.config.trunk.cached_numbers(context), encoder=0, global_=0)

    def span(self, ids: Int[Array, "B S"]) -> Span:
        """What each byte of whole texts sees."""
        last_eos = last_eos_before(ids, mask=self.config.mask_documents)
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        return kv_cache.causal_span(
            positions, window=self.config.trunk.window, first=last_eos[:, :-1] + 1
        )

    def window(
        self, ids: Int[Array, "B W"], caches: Caches | None, *, span: Span
    ) -> tuple[Float[Array, "B W V"], Caches | None]:
        """The same for a window of text behind the caches; returns them with the window in."""
        hidden, caches = self.trunk(self.embed(ids), caches, span=span)
        return self.logits(hidden), caches

    def logits(self, hidden: Float[Array, "B W D"]) -> Float[Array, "B W V"]:
        """The head on the output of any layer: an early exit."""
        return self.head(self.norm(hidden)).astype(jnp.float32)


def last_eos_before(
    ids: Int[Array, "B W"],
    *,
    mask: bool,
    state: Int[Array, " B"] | None = None,
    start: Int[Array, " B"] | int = 0,
) -> Int[Array, "B W+1"]:
    """Position of the latest EOS before each byte of a window, and after its last; -1 where none.

    Args:
      ids: the window.
      mask: False pretends that there is no EOS: documents then see each other.
      state: the latest EOS before the window.
      start: position of the window's first byte.
    """
    if state is None:
        state = jnp.full(ids.shape[0], -1, jnp.int32)
    if not mask:
        return jnp.broadcast_to(state[:, None], (ids.shape[0], ids.shape[1] + 1))
    positions = jnp.reshape(start, (-1, 1)) + jnp.arange(ids.shape[1])
    found = jnp.where(ids == vocab.EOS, positions, -1)
    return jax.lax.cummax(jnp.concatenate([state[:, None], found], axis=1), axis=1)
