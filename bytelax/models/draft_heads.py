"""Stacks that draft bytes from the states of a frozen model: a draft layer and a draft block."""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models import block_attention, kv_cache
from bytelax.models.block_attention import Blocks
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution, rows_of
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Dense, RMSNorm, head, parameter, project, with_specials
from bytelax.models.transformer import Transformer

_SMALL, _ZEROS = nn.initializers.normal(0.02), nn.initializers.zeros


_RANK = 64  # of a `BlockTable`


class BlockTable(nn.Module):
    """What the byte before adds to the logits of a byte in a masked block, which a BLT-D fills.

    A table of pairs of bytes, as a product of two matrices of low rank. What the decoder predicts
    for the byte weighs the terms of the product, so that a row depends on the state, too.
    """

    @nn.compact
    def __call__(
        self, before: Int[Array, "*B"], logits: Float[Array, "*B V"]
    ) -> Float[Array, "*B V"]:
        """Returns what to add to the logits of a byte; nothing for special ids.

        Args:
          before: id of the byte before.
          logits: what the decoder predicts for the byte.
        """
        log_probs = jax.nn.log_softmax(logits[..., vocab.OFFSET :].astype(jnp.float32))
        values = log_probs.shape[-1]
        left = parameter(self, "left", _SMALL, (values, _RANK), ("byte", None))
        state = parameter(self, "state", _ZEROS, (values, _RANK), ("byte", None))
        right = parameter(self, "right", _ZEROS, (_RANK, values), (None, "byte"))
        read = values**0.5 * jnp.exp(log_probs / 2)  # its mean square is 1
        terms = rows_of(left, jnp.maximum(before - vocab.OFFSET, 0)) * (1 + read @ state)
        row = (terms @ right).astype(jnp.float32)
        return jnp.pad(row, [(0, 0)] * before.ndim + [(vocab.OFFSET, 0)])


SAMPLED, GREEDY = 0, 1  # the two outputs


class Confidence(nn.Module):
    """Predicts the acceptance of a byte from the state that predicts it and the byte before it.

    Output 0 is for sampling: the overlap sum(min(p, q)) of the drafter's distribution and the
    model's. Output 1 is for greedy decoding: whether both have the same likeliest byte. The head
    learns from the states without changing them. Source: DSpark (arXiv 2607.05147).

    Attributes:
      values: number of byte values.
      execution: how the head runs.
    """

    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B 2"]:
        """Returns both outputs as logits, in float32."""
        zeros = nn.initializers.zeros
        table = parameter(self, "table", zeros, (self.values, 2), ("byte", None))
        out = Dense((2,), ("embed", None), self.execution, zeros, name="out")
        found = out(jax.lax.stop_gradient(state))
        found = found + rows_of(table, jnp.maximum(before - vocab.OFFSET, 0))
        return found.astype(jnp.float32)


class Predicted(NamedTuple):
    """What a draft stack says of some bytes."""

    logits: Float[Array, "*B N"]  # of a draft layer with -inf for special ids, else of byte values
    states: Float[Array, "*B D"]  # for `accepted`; of a draft layer the next features


class DraftStack(nn.Module):
    """A stack that drafts from the states of a frozen model: what both kinds have in common.

    The states of a byte are fused into one feature. Each kind of stack makes of them what it reads.

    Attributes:
      trunk: sizes of the stack.
      values: number of byte values.
      latent: whether the first of the fused states is a latent.
      has_confidence: whether there is a `Confidence` head.
      execution: how the layers run.
    """

    trunk: TransformerConfig
    values: int
    latent: bool = False
    has_confidence: bool = False
    execution: Execution = Execution()

    def make_shared(self) -> None:
        """Creates the layers that both kinds have; called in `setup`."""
        t = self.trunk
        self.fusion, self.inward = (project(t.dim, self.execution) for _ in range(2))
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.embedding_norm, self.norm = RMSNorm(t.norm_eps), RMSNorm(t.norm_eps)
        self.out = head(self.values, self.execution)
        if self.has_confidence:
            self.confidence = Confidence(self.values, self.execution)

    def fuse(self, *states: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """Fuses the states of each byte into one feature."""
        if self.latent:
            states = (self.latent_norm(states[0]), *states[1:])
        return self.fusion(jnp.concatenate(states, axis=-1))


class EagleStack(DraftStack):
    """EAGLE-3's draft layer: one block that predicts bytes from fused states or its own outputs.

    The fused states are a low, a middle and a high one. The block reads their feature together
    with the embedding of the byte that followed. When it drafts further bytes, its own outputs take
    the place of the features.

    Source: Li et al., arXiv 2503.01840.
    """

    def setup(self):
        self.make_shared()
        self.feature_norm = RMSNorm(self.trunk.norm_eps)
        self.block = Transformer(self.trunk, self.execution)

    def __call__(
        self,
        feature: Float[Array, "B W D"],
        embedded: Float[Array, "B W E"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B W V"], Float[Array, "B W D"], Caches | None]:
        """Runs the draft layer over a window.

        Args:
          feature: feature of each byte, from `fuse`, or an earlier output of this layer.
          embedded: the trunk's embedding of the byte that followed each of these bytes.
          caches: caches of this layer.
          span: positions of the features' bytes.

        Returns:
          Logits of the byte after each embedded one, the next features, and the caches.
        """
        x, caches = self.block(self._joined(feature, embedded), caches, span=span)
        return self._logits(x), x, caches

    def unroll(
        self, features: Float[Array, "B S D"], embedded: Float[Array, "B S E"], steps: int
    ) -> list[Predicted]:
        """Unrolls drafting over whole texts, for training: what each drafting step says.

        The first step reads fused features. Step j > 0 at byte t reads the output of step j - 1 at
        byte t - 1. It attends to fused features up to byte t - j, and after them to one byte of
        each later step: what the cache holds once j bytes have been drafted.

        Args:
          features: from `fuse`.
          embedded: the trunk's embedding of the byte that followed each feature's byte.
          steps: number of drafting steps.
        """
        positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape[:2])
        attend = functools.partial(_attend_to_own_outputs, window=self.trunk.window)
        before: Any = ()  # keys and values of the steps so far
        outputs = []
        for _ in range(steps):
            joined = self._joined(features, embedded)
            x, before = self.block.layers[0](joined, before, positions=positions, attend=attend)
            outputs.append(Predicted(self._logits(x), x))
            features = jnp.roll(x, 1, axis=1)
        return outputs

    def accepted(
        self, state: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B 2"]:
        """Predicts the acceptance of the byte that a state predicts, as `Confidence` does."""
        return self.confidence(self.norm(state), before)

    def _joined(self, feature, embedded):
        pair = [self.feature_norm(feature), self.embedding_norm(embedded)]
        return self.inward(jnp.concatenate(pair, axis=-1))

    def _logits(self, x):
        return with_specials(self.out(self.norm(x)).astype(jnp.float32))


def _attend_to_own_outputs(projections, before, *, window):
    """An `Attend` for `unroll`; its cache holds keys and values of earlier steps, oldest first."""
    queries, keys, values = projections.rotated()
    steps = (*before, (keys, values))
    age = len(steps) - 1
    length, heads, dim = queries.shape[1:]
    group = heads // keys.shape[2]

    def of_heads(x):
        return jnp.repeat(x, group, axis=2)

    place = jnp.arange(length)
    back = place[:, None] - place  # distance from each query back to each key
    seen = (back >= age) & (back < (window or length))
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, of_heads(steps[0][0]))
    scores = jnp.where(seen, scores.astype(jnp.float32), -jnp.inf)
    own = [
        [of_heads(jnp.roll(x, age - index, axis=1)) for x in step]
        for index, step in enumerate(steps[1:], 1)
    ]
    diagonal = [jnp.einsum("bqhd,bqhd->bhq", queries, k).astype(jnp.float32) for k, _ in own]
    scores = jnp.concatenate([scores, *(x[..., None] for x in diagonal)], axis=-1)
    # A query that attends to nothing lies before the text, and its loss is not counted.
    weights = jax.nn.softmax(jnp.maximum(scores * dim**-0.5, -1e30)).astype(queries.dtype)
    attended = jnp.einsum("bhqk,bkhd->bqhd", weights[..., :length], of_heads(steps[0][1]))
    for index, (_, v) in enumerate(own):
        attended += weights[..., length + index].swapaxes(1, 2)[..., None] * v
    return attended, steps


class DFlashStack(DraftStack):
    """Predicts the K bytes after the pending one in one pass.

    The queries are the pending byte, of which only the id is known, and K masks that differ in
    their positions. They attend to one another and to the bytes before the pending one, whose keys
    and values each layer computes from the fused hidden states. Each byte is predicted
    independently of the others in the block; `table_row` then conditions it on the byte before.

    Source: DFlash (arXiv 2602.06036) for the states of the target as keys and values of every
    layer; DSpark (arXiv 2607.05147) for the table of the byte before.

    Attributes:
      rank: rank of the table; None is a full table with a row for each byte, 0 is no table.
    """

    rank: int | None = None

    def setup(self):
        self.make_shared()
        self.mask = parameter(self, "mask", _SMALL, (self.trunk.dim,), ("norm",))
        self.blocks = Transformer(self.trunk, self.execution)
        # The table adds nothing at first.
        values, rank = self.values, self.rank
        if rank is None:
            self.table = parameter(self, "table", _ZEROS, (values, values), ("byte", "byte"))
        elif rank:
            self.left = parameter(self, "left", _SMALL, (values, rank), ("byte", None))
            self.right = parameter(self, "right", _ZEROS, (rank, values), (None, "byte"))

    def table_row(self, before: Int[Array, "*B"]) -> Float[Array, "*B N"]:
        """Returns what the id before a byte adds to its logits."""
        value = jnp.maximum(before - vocab.OFFSET, 0)
        if self.rank is None:
            return rows_of(self.table, value).astype(jnp.float32)
        if not self.rank:
            return jnp.zeros((*before.shape, self.values), jnp.float32)
        return (rows_of(self.left, value) @ self.right).astype(jnp.float32)

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
