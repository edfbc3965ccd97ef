"""A small stack that drafts several bytes in one pass, from the states of a frozen model.

Sources: DFlash (arXiv 2602.06036) for the states of the target as keys and values of every layer;
DSpark (arXiv 2607.05147) for the table of the byte before.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models import block_attention, kv_cache
from bytelax.models.block_attention import Blocks
from bytelax.models.execution import Execution
from bytelax.models.fusion import Fuses
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import RMSNorm, head, parameter, project
from bytelax.models.lookup import rows_of
from bytelax.models.transformer import Transformer
from bytelax.models.transformer_config import TransformerConfig

_SMALL = nn.initializers.normal(0.02)


class DraftBlock(Fuses, nn.Module):
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
      execution: dtype and execution options of the layers.
    """

    trunk: TransformerConfig
    values: int
    rank: int | None = None
    latent: bool = False
    execution: Execution = Execution()

    def setup(self):
        t, values = self.trunk, self.values
        self.fusion, self.inward = project(t.dim), project(t.dim)
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.embedding_norm = RMSNorm(t.norm_eps)
        self.mask = parameter(self, "mask", _SMALL, (t.dim,), ("norm",))
        self.blocks = Transformer(t, self.execution)
        self.norm = RMSNorm(t.norm_eps)
        self.out = head(values)
        zeros = nn.initializers.zeros
        if self.rank is None:
            self.table = parameter(self, "table", zeros, (values, values), ("byte", "byte"))
        elif self.rank:
            self.left = parameter(self, "left", _SMALL, (values, self.rank), ("byte", None))
            self.right = parameter(self, "right", zeros, (self.rank, values), (None, "byte"))

    def remember(
        self, features: Float[Array, "B S D"], caches: Caches, *, positions: Int[Array, "B S"]
    ) -> Caches:
        """Writes the keys and values of bytes to the caches; position -1 writes nothing.

        Args:
          features: fused states of the bytes, from `fuse`.
          caches: one for each layer.
          positions: positions of the bytes.
        """

        def write(queries, keys, values, cache):
            return jnp.zeros_like(queries), kv_cache.write(cache, keys, values, positions)

        return self._into_each_layer(features, caches, positions, write)

    def __call__(
        self,
        embedded: Float[Array, "B E"],
        caches: Caches,
        *,
        position: Int[Array, " B"],
        size: int,
    ) -> tuple[Float[Array, "B K N"], Caches]:
        """Returns the logits of the K bytes after the pending one, and caches with the block.

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
        logits, caches = self._run(embedded[:, None], caches, span.positions, size, attend)
        return logits[:, 0], caches

    def of_texts(
        self,
        features: Float[Array, "B S D"],
        embedded: Float[Array, "B M E"],
        *,
        start: Int[Array, "B M"],
        size: int,
    ) -> Float[Array, "B M K N"]:
        """Returns the logits of many blocks of whole texts, as drafting would compute them.

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

        def keep(queries, keys, values, _):
            return jnp.zeros_like(queries), (keys, values)

        def attend(queries, keys, values, clean):
            attended = block_attention.attend_cells(
                queries, keys, values, *clean, span=span, blocks=blocks
            )
            return attended, None

        nothing = (None,) * self.trunk.layers
        clean = self._into_each_layer(features, nothing, positions, keep)
        places = blocks.positions().reshape(start.shape[0], -1)
        return self._run(embedded, clean, places, size, attend)[0]

    def table_row(self, before: Int[Array, "*B"]) -> Float[Array, "*B N"]:
        """Returns what the id before a byte adds to its logits."""
        value = jnp.maximum(before - vocab.OFFSET, 0)
        if self.rank is None:
            return rows_of(self.table, value).astype(jnp.float32)
        if not self.rank:
            return jnp.zeros((*before.shape, self.values), jnp.float32)
        return (rows_of(self.left, value) @ self.right).astype(jnp.float32)

    def _into_each_layer(
        self, features, caches: tuple[Any, ...], positions, store: Callable
    ) -> tuple[Any, ...]:
        """Calls `store` with the keys and values of each layer, and returns its results."""
        return tuple(
            layer(features, cache, positions=positions, attend=store, transforms=False)[1]
            for layer, cache in zip(self.blocks.layers, caches, strict=True)
        )

    def _run(self, embedded, caches, positions, size, attend):
        batch, number, _ = embedded.shape
        pending = self.inward(self.embedding_norm(embedded))[:, :, None]
        masks = jnp.broadcast_to(self.mask, (batch, number, size, self.trunk.dim))
        x = jnp.concatenate([pending, masks.astype(pending.dtype)], axis=2)
        x, written = x.reshape(batch, -1, self.trunk.dim), []
        for layer, cache in zip(self.blocks.layers, caches, strict=True):
            x, cache = layer(x, cache, positions=positions, attend=attend)
            written.append(cache)
        x = x.reshape(batch, number, size + 1, -1)[:, :, 1:]
        return self.out(self.norm(x)).astype(jnp.float32), tuple(written)
