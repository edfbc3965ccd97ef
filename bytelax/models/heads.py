"""Prediction heads with which a byte transformer or a BLT drafts for itself.

The heads read the trunk's hidden states and are usually trained with the trunk frozen. They predict
byte values only, never special ids.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.configs import HeadsConfig, TransformerConfig
from bytelax.models.draft_block import DraftBlock
from bytelax.models.execution import Execution
from bytelax.models.head_parts import BlockTable, Confidence, Fuses
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.latent_head import RECENT, ClosingHead, LatentHead
from bytelax.models.layers import Dense, LayerNorm, RMSNorm, head, parameter, project
from bytelax.models.transformer import Transformer


class Heads(nn.Module):
    """The prediction heads of a trunk; each method is the forward pass of one kind of head."""

    config: HeadsConfig
    trunk: TransformerConfig
    vocab_size: int
    execution: Execution = Execution()

    def setup(self):
        c, dim, execution = self.config, self.trunk.dim, self.execution
        values = self.vocab_size - vocab.OFFSET
        self.exit_heads = {str(depth): ExitHead(values, execution) for depth in c.exits}
        self.ahead_heads = [MultiByteHead(dim, values, execution) for _ in range(c.bytes_ahead)]
        if c.correction:
            shape = (c.bytes_ahead, values, values)
            zeros, axes = nn.initializers.zeros, (None, "byte", "byte")
            self.correction = parameter(self, "correction", zeros, shape, axes)
        self.two_byte_heads = {str(depth): TwoByteHead(dim, execution) for depth in c.two_byte}
        draft = c.draft
        if c.draft_layer:
            stack = draft.stack(self.trunk, layers=1)
            self.draft_layer = DraftLayer(stack, values, draft.latent, draft.confidence, execution)
        if c.draft_block:
            stack = draft.stack(self.trunk, layers=draft.layers)
            options = draft.table_rank, draft.latent, draft.confidence, execution
            self.draft_block = DraftBlock(stack, values, *options)
        if c.block_table:
            self.block_table = BlockTable(values, draft.table_rank)
        if c.latents is not None:
            stack = dataclasses.replace(self.trunk, ffn_dim=c.latents)
            self.latents = LatentHead(stack, execution)
            self.closes = ClosingHead(stack.norm_eps, execution)

    def exit(self, depth: int, hidden: Float[Array, "*B D"]) -> Float[Array, "*B V"]:
        """Computes next-byte logits from the hidden state at a depth."""
        return with_specials(self.exit_heads[str(depth)](hidden))

    def ahead(
        self, index: int, hidden: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B V"]:
        """Computes logits of the byte `index` + 2 positions ahead, from the final hidden state.

        Args:
          index: index of the multi-byte head, from 0.
          hidden: final hidden states, after the trunk's final norm.
          before: id of the byte before the predicted one, for the correction table.
        """
        logits = self.ahead_heads[index](hidden)
        if self.config.correction:
            logits += self.correction[index][jnp.maximum(before - vocab.OFFSET, 0)]
        return with_specials(logits)

    def two_byte(
        self,
        depth: int,
        hidden: Float[Array, "*B D"],
        embedded: Float[Array, "*B D"],
    ) -> Float[Array, "*B D"]:
        """Predicts the final hidden state at the next byte; the trunk's output layer reads it.

        Args:
          depth: depth of the hidden states.
          hidden: hidden states.
          embedded: the trunk's embedding of the next byte.
        """
        return self.two_byte_heads[str(depth)](hidden, embedded)

    def __call__(
        self,
        hidden: tuple[Float[Array, "B S _"], ...],
        embedded: Float[Array, "B S D"],
        ids: Int[Array, "B S"],
        looked_up: Float[Array, "B S E"] | None = None,
    ) -> None:
        """Runs every head once, so that `init` creates all parameters.

        Args:
          hidden: the states that heads read, as `state_dims` of a config describes them.
          embedded: embeddings of the bytes.
          ids: the bytes.
          looked_up: what a BLT's encoder looks up of them.
        """
        c, final = self.config, hidden[-1]
        for depth in c.exits:
            self.exit(depth, final)
        for index in range(c.bytes_ahead):
            self.ahead(index, final, ids)
        for depth in c.two_byte:
            self.two_byte(depth, final, final)
        if c.draft_layer:
            layer = self.draft_layer
            features = layer.fuse(*(hidden[n] for n in c.fused(c.draft_layer)))
            (step,) = layer.unroll(features, embedded, 1)
            if c.draft.confidence:
                layer.accepted(step.state, ids)
        if c.draft_block:
            block = self.draft_block
            features = block.fuse(*(hidden[n] for n in c.fused(c.draft_block)))
            start = jnp.ones((ids.shape[0], 1), jnp.int32)
            found = block.of_texts(features, embedded[:, :1], start=start, size=1)
            block.table_row(ids)
            if c.draft.confidence:
                block.accepted(found.states, ids[:, :1, None])
        if c.block_table:
            self.block_table(ids)
        if c.latents is not None:
            assert looked_up is not None  # only a BLT has latents
            recent = jnp.repeat(looked_up[..., None, :], RECENT, axis=-2)
            self.latents(hidden[0], final, recent, jnp.ones(recent.shape[:-1], bool))
            self.closes(final, looked_up)


class ExitHead(nn.Module):
    """An early-exit head: layer norm and a linear map to the logits of byte values."""

    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        """Computes float32 logits of byte values from hidden states."""
        normed = LayerNorm(name="norm")(hidden)
        return head(self.values, self.execution, name="out")(normed).astype(jnp.float32)


class MultiByteHead(nn.Module):
    """A Medusa head, W (h + silu(U h)), with U initialized to zero.

    Source: Cai et al., arXiv 2401.10774, section 2.1.1.
    """

    dim: int
    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        """Computes float32 logits of byte values from final hidden states."""
        zeros = nn.initializers.zeros
        step = Dense((self.dim,), ("embed", None), self.execution, zeros, name="step")
        hidden = hidden + nn.silu(step(hidden))
        return head(self.values, self.execution, name="out")(hidden).astype(jnp.float32)


class TwoByteHead(nn.Module):
    """Projects [state; embedding of the next byte] to an input of the trunk's output layer."""

    dim: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, hidden: Float[Array, "*B D"], embedded: Float[Array, "*B D"]
    ) -> Float[Array, "*B D"]:
        """Projects a hidden state and the embedding of the next byte to one vector."""
        both = jnp.concatenate([hidden, embedded], axis=-1)
        return project(self.dim, self.execution, name="project")(both)


class Step(NamedTuple):
    """What a draft layer says in one drafting step."""

    logits: Float[Array, "B S V"]
    state: Float[Array, "B S D"]  # the next feature


class DraftLayer(Fuses, nn.Module):
    """EAGLE-3's draft layer: one block that predicts bytes from fused states or its own outputs.

    The low, middle and high states of a byte are fused into one feature. The block reads the
    feature together with the embedding of the byte that followed. When it drafts further bytes,
    its own outputs take the place of the features.

    Source: Li et al., arXiv 2503.01840.

    Attributes:
      trunk: the sizes of the block.
      values: number of byte values.
      latent: whether the first of the fused states is a latent.
      has_confidence: whether there is a `Confidence` head.
      execution: how the block runs.
    """

    trunk: TransformerConfig
    values: int
    latent: bool = False
    has_confidence: bool = False
    execution: Execution = Execution()

    def setup(self):
        t = self.trunk
        self.fusion = project(t.dim, self.execution)
        if self.has_confidence:
            self.confidence = Confidence(self.values, self.execution)
        if self.latent:
            self.latent_norm = RMSNorm(t.norm_eps)
        self.feature_norm, self.embedding_norm = RMSNorm(t.norm_eps), RMSNorm(t.norm_eps)
        self.inward = project(t.dim, self.execution)
        self.block = Transformer(t, self.execution)
        self.norm = RMSNorm(t.norm_eps)
        self.out = head(self.values, self.execution)

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
    ) -> list[Step]:
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
            outputs.append(Step(self._logits(x), x))
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


def with_specials(logits: Float[Array, "*B N"]) -> Float[Array, "*B V"]:
    """Extends logits over byte values to logits over ids; special ids get -inf."""
    pad = [(0, 0)] * (logits.ndim - 1) + [(vocab.OFFSET, 0)]
    return jnp.pad(logits, pad, constant_values=-jnp.inf)


def only_bytes(logits: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
    """Sets the logits of special ids to -inf."""
    return with_specials(logits[..., vocab.OFFSET :])
