"""The decoder-only byte transformer, which also serves as BLT's entropy model."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models import kv_cache
from bytelax.models.byte_model import ByteModel
from bytelax.models.configs import ByteLMConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Embedding, RMSNorm, head
from bytelax.models.transformer import Transformer
from bytelax.pods.sharding import TENSOR


class ByteLM(ByteModel):
    """A decoder-only transformer over bytes: embedding, blocks, final norm, untied output layer."""

    config: ByteLMConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.embed = Embedding(c.vocab_size, c.trunk.dim, execution=execution)
        self.trunk = Transformer(c.trunk, execution)
        self.norm = RMSNorm(c.trunk.norm_eps)
        self.head = head(c.vocab_size, execution)

    def __call__(self, ids: Int[Array, "B S"]) -> Float[Array, "B S V"]:
        """Computes float32 next-byte logits after every position of whole texts."""
        hidden, _ = self.trunk(self.embed(ids), span=self.span(ids))
        return self.logits(hidden)

    def states(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[tuple[Float[Array, "B S D"], ...], None]:
        """The embedding and the states after each block, and None, since there are no patches."""
        return self.trunk.states(self.embed(ids), span=self.span(ids))[0], None

    @nn.nowrap
    def device_shard(self, devices: int) -> "ByteLM":
        """As `ByteModel.device_shard`; see `pods.sharding`."""
        if devices == 1:
            return self
        trunk, heads = self.config.trunk, self.config.heads
        heads = heads and heads.device_shard(trunk, devices)
        trunk = trunk.device_shard(devices)
        return self.clone(
            config=dataclasses.replace(self.config, trunk=trunk, heads=heads),
            execution=dataclasses.replace(self.execution, tensor_axis=TENSOR),
        )

    def span(self, ids: Int[Array, "B S"]) -> Span:
        """The causal span of whole texts: which positions each byte attends to."""
        state = jnp.full(ids.shape[0], self.config.unseen, jnp.int32)
        last_eos = last_eos_before(ids, state, mask=self.config.mask_documents)
        positions = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
        return kv_cache.causal_span(
            positions, window=self.config.trunk.window, first=last_eos[:, :-1] + 1
        )

    def extend(
        self, ids: Int[Array, "B W"], caches: Caches | None, *, span: Span
    ) -> tuple[Float[Array, "B W V"], Caches | None]:
        """Computes next-byte logits of a window, and the caches with the window written to them.

        Args:
          ids: ids of the window.
          caches: caches of the text before the window; None for whole texts.
          span: positions of the window and what each of them attends to.
        """
        hidden, caches = self.trunk(self.embed(ids), caches, span=span)
        return self.logits(hidden), caches

    def logits(self, hidden: Float[Array, "B W D"]) -> Float[Array, "B W V"]:
        """Applies the final norm and the output layer to hidden states.

        The states may come from any block; those of an earlier one give an early exit.
        """
        return self.execution.logits(self.norm, self.head, hidden)


def last_eos_before(
    ids: Int[Array, "B W"],
    state: Int[Array, " B"],
    *,
    mask: bool,
    start: Int[Array, " B"] | int = 0,
) -> Int[Array, "B W+1"]:
    """Position of the latest EOS before each byte of a window and after its last byte.

    Args:
      ids: ids of the window.
      state: position of the latest EOS before the window; -1 if there is none.
      mask: if False, every EOS in the window is ignored, so that documents attend to each other.
      start: position of the first byte of the window.

    Returns:
      Positions with axes [B, W + 1], -1 where there is no EOS.
    """
    if not mask:
        return jnp.broadcast_to(state[:, None], (ids.shape[0], ids.shape[1] + 1))
    positions = jnp.reshape(start, (-1, 1)) + jnp.arange(ids.shape[1])
    found = jnp.where(ids == vocab.EOS, positions, -1)
    return jax.lax.cummax(jnp.concatenate([state[:, None], found], axis=1), axis=1)
