"""Prediction heads with which a byte transformer or a BLT drafts for itself.

The heads read the trunk's hidden states and are usually trained with the trunk frozen. Those that
predict bytes predict byte values only, never special ids. The head of latents predicts the latent
of the next patch of a BLT, and whether a byte ends its patch.
"""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.models.block import SwiGLU
from bytelax.models.configs import HeadsConfig, TransformerConfig
from bytelax.models.draft_heads import BlockTable, DFlashStack, EagleStack
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, LayerNorm, RMSNorm, head, parameter, project, with_specials

RECENT = 8  # bytes of a patch that a `LatentHead` reads: its last ones
_HIDDEN = 32  # of a `ClosingHead`


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
        draft, options = c.draft, (c.draft.latent, c.draft.confidence, execution)
        if c.draft_layer:
            stack = draft.stack(self.trunk, layers=1)
            self.draft_layer = EagleStack(stack, values, *options)
        if c.draft_block:
            stack = draft.stack(self.trunk, layers=draft.layers)
            self.draft_block = DFlashStack(stack, values, *options, rank=draft.table_rank)
        if c.block_table:
            self.block_table = BlockTable()
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
                layer.accepted(step.states, ids)
        if c.draft_block:
            block = self.draft_block
            features = block.fuse(*(hidden[n] for n in c.fused(c.draft_block)))
            start = jnp.ones((ids.shape[0], 1), jnp.int32)
            found = block.of_texts(features, embedded[:, :1], start=start, size=1)
            block.table_row(ids)
            if c.draft.confidence:
                block.accepted(found.states, ids[:, :1, None])
        if c.block_table:
            self.block_table(ids, jnp.zeros((*ids.shape, self.vocab_size)))
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


class LatentHead(nn.Module):
    """Predicts the latent of a patch from the latent before it, its bytes and a decoder state.

    Of the bytes it reads what the encoder reads: the sums of their byte and n-gram embeddings,
    which are looked up. So a prediction costs one pass of this network. Predictions can take the
    place of the latent before, to predict the next one.

    Attributes:
      config: the width, `dim`, and the hidden units, `ffn_dim`.
      execution: how the head runs.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self,
        latent: Float[Array, "B P G"],
        state: Float[Array, "B P D"],
        recent: Float[Array, "B P R E"],
        inside: Bool[Array, "B P R"],
    ) -> Float[Array, "B P G"]:
        """Predicts the latent of a patch.

        Args:
          latent: the latent of the patch before.
          state: the decoder's last state at the byte before the last one of the patch. It has not
            read the patch's own latent.
          recent: `Encoder.looked_up` of the latest RECENT bytes, up to the last one of the patch.
          inside: which of these belong to the patch.
        """
        c = self.config
        read = jnp.where(inside[..., None], recent, 0)
        mean = read.sum(-2) / jnp.maximum(inside.sum(-1, keepdims=True), 1).astype(read.dtype)
        parts = {"latent": latent, "state": state, "mean": mean, "last": recent[..., -1, :]}
        normed = [RMSNorm(c.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(c.dim, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        norm = RMSNorm(c.norm_eps, name="mlp_norm").of(x)
        x = SwiGLU(c, self.execution, name="mlp")(x, norm=norm)
        x = RMSNorm(c.norm_eps, name="norm")(x)
        return project(latent.shape[-1], self.execution, name="out")(x)


class ClosingHead(nn.Module):
    """Predicts whether a byte is the last of its patch, in place of the entropy model.

    Attributes:
      norm_eps: of the norms.
      execution: how the head runs.
    """

    norm_eps: float
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], looked_up: Float[Array, "*B E"]
    ) -> Float[Array, " *B"]:
        """Returns the logit, in float32.

        Args:
          state: the decoder's last state at the byte before.
          looked_up: `Encoder.looked_up` of the byte.
        """
        parts = {"state": state, "last": looked_up}
        normed = [RMSNorm(self.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(_HIDDEN, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        out = Dense((1,), ("embed", None), self.execution, name="out")(nn.silu(x))
        return out[..., 0].astype(jnp.float32)
