"""A small stack that drafts several bytes in one pass, from the states of a frozen model.

Sources: DFlash (arXiv 2602.06036) for the states of the target as keys and values of every layer;
DSpark (arXiv 2607.05147) for the table of the byte before.
"""

import dataclasses
import functools
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models import block_attention, kv_cache
from bytelax.models.block_attention import Blocks
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.head_parts import ByteTable, Confidence, Fuses
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import RMSNorm, head, parameter, project
from bytelax.models.transformer import Transformer

_SMALL = nn.initializers.normal(0.02)


class Predicted(NamedTuple):
    """What a draft block says of some bytes."""

    logits: Float[Array, "*B K N"]  # of byte values, float32, without the table
    states: Float[Array, "*B K D"]  # for `accepted`


class DraftBlock(Fuses, ByteTable, nn.Module):
    """Predicts the K bytes after the pending one in one pass.

    The queries are the pending byte, of which only the id is known, and K masks that differ in
    their positions. They attend to one another and to the bytes before the pending one, whose keys
    and values each layer computes from the fused hidden states. Each byte is predicted
    independently of the others in the block; `table_row` then conditions it on the byte before.

    Attributes:
      trunk: sizes of the stack.
      values: number of byte values.
      rank: rank of the table; None is a full table with a row for each byte, 0 is no table.
      latent: whether the first of the fused states is a latent.
      has_confidence: whether there is a `Confidence` head.
      execution: dtype and execution options of the layers.
    """

    trunk: TransformerConfig
    values: int
    rank: int | None = None
    latent: bool = False
    has_confidence: bool = False
    execution: Execution = Execution()

    def setup(self):
        t = self.trunk
        self.fusion, self.inward = (project(t.dim, self.execution) for _ in range(2))
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.embedding_norm = RMSNorm(t.norm_eps)
        self.mask = parameter(self, "mask", _SMALL, (t.dim,), ("norm",))
        self.blocks = Transformer(t, self.execution)
        self.norm = RMSNorm(t.norm_eps)
        self.out = head(self.values, self.execution)
        if self.has_confidence:
            self.confidence = Confidence(self.values, self.execution)
        self.make_table()

    def remember(
        self, features: Float[Array, "B S D"], caches: Caches, *, positions: Int[Array, "B S"]
    ) -> Caches:
        """Writes the keys and values of bytes to the caches; position -1 writes nothing.

        Args:
          features: fused states of the bytes, from `fuse`.
          caches: one for each layer.
          positions: positions of the bytes.
        """

        new = self._keys_values(features, positions)
        return tuple(
            cache and kv_cache.write(cache, keys, values, positions)
            for cache, (keys, values) in zip(caches, new, strict=True)
        )

    def __call__(
        self,
        embedded: Float[Array, "B E"],
        caches: Caches,
        *,
        position: Int[Array, " B"],
        size: int,
    ) -> tuple[Predicted, Caches]:
        """Predicts the K bytes after the pending one; returns also the caches with the block.

        Args:
          embedded: the trunk's embedding of the pending byte.
          caches: from `remember`, with all bytes before the pending one.
          position: position of the pending byte.
          size: K.
        """
        span = kv_cache.causal_span(
            position[:, None] + jnp.arange(size + 1), window=self.trunk.window
        )
        last = jnp.broadcast_to(span.newest[:, None], span.last.shape)
        span = dataclasses.replace(span, last=last)
        attend = functools.partial(kv_cache.attend, span=span)
        found, caches = self._run(embedded[:, None], caches, span.positions, size, attend)
        return Predicted(*(x[:, 0] for x in found)), caches

    def of_texts(
        self,
        features: Float[Array, "B S D"],
        embedded: Float[Array, "B M E"],
        *,
        start: Int[Array, "B M"],
        size: int,
    ) -> Predicted:
        """Predicts many blocks, axes [B, M, K], of whole texts, as drafting would.

        Args:
          features: fused states of all bytes, from `fuse`.
          embedded: the trunk's embedding of the pending byte of each block.
          start: position of the pending byte, at least 1. Of that byte only the embedding is read,
            and nothing of the bytes after it.
          size: K.
        """
        positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape[:2])
        span = kv_cache.causal_span(positions, window=self.trunk.window)
        cells = jnp.zeros((*start.shape, size + 1), jnp.int32)
        blocks = Blocks(cells, start, jnp.full_like(start, size + 1))

        def attend(projections, clean):
            cells = projections.rotated()
            return block_attention.attend_cells(*cells, *clean, span=span, blocks=blocks), None

        clean = self._keys_values(features, positions)
        places = blocks.positions().reshape(start.shape[0], -1)
        return self._run(embedded, clean, places, size, attend)[0]

    def accepted(
        self, state: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B 2"]:
        """Predicts the acceptance of the byte that a state predicts, as `Confidence` does."""
        return self.confidence(state, before)

    def _keys_values(self, features, positions):
        """The keys and values of each layer."""
        layers = self.blocks.layers
        return tuple(layer.projections(features, positions).rotated()[1:] for layer in layers)

    def _run(self, embedded, caches, positions, size, attend):
        batch, number, _ = embedded.shape
        pending = self.inward(self.embedding_norm(embedded))[:, :, None]
        masks = jnp.broadcast_to(self.mask, (batch, number, size, self.trunk.dim))
        x = jnp.concatenate([pending, masks.astype(pending.dtype)], axis=2)
        x, written = x.reshape(batch, -1, self.trunk.dim), []
        for index, cache in enumerate(caches):
            x, cache = self.blocks.layers[index](x, cache, positions=positions, attend=attend)
            written.append(cache)
        x = x.reshape(batch, number, size + 1, -1)[:, :, 1:]
        x = self.norm(x)
        return Predicted(self.out(x).astype(jnp.float32), x), tuple(written)
