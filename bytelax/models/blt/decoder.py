"""The local decoder, which predicts the next byte from each byte and the latent of one patch.

Source: BLT (arXiv 2412.09871, section 3.3). The joint pass is from Fast BLT (arXiv 2605.08044).
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models import block_attention, kv_cache
from bytelax.models.block import CrossAttention
from bytelax.models.block_attention import Blocks
from bytelax.models.configs import BLTConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Embedding, RMSNorm, head, project
from bytelax.models.transformer import Transformer, stacked
from bytelax.pods.sharding import BATCH, Axes


class Context(NamedTuple):
    """Cross-attention keys and values of P patches for one decoder layer, k vectors per patch."""

    keys: Float[Array, "B P k K d"]
    values: Float[Array, "B P k K d"]

    @property
    def logical_axes(self) -> Axes:
        """Logical axes of both arrays."""
        return (BATCH, None, None, "kv_head", "head_dim")


class Joint(NamedTuple):
    """Logits of a joint pass over clean texts and masked blocks."""

    clean: Float[Array, "B S V"]  # for the byte after each clean byte
    cells: Float[Array, "B M C V"]  # for each cell's own byte


class Decoder(nn.Module):
    """The local decoder, in which every byte attends to the latent of one patch before each block.

    With `decoder_cross_attention="first"` this happens before the first block only.
    """

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        if c.decoder_input == "embedding":
            self.embed = Embedding(c.vocab_size, c.decoder.dim, execution=execution)
        self.split = project(c.patch_vectors * c.decoder.dim, execution)
        layers = range(c.decoder_cross_layers)
        cross_attention = execution.layer(CrossAttention)
        self.cross = [cross_attention(c.decoder, execution) for _ in layers]
        self.trunk = Transformer(c.decoder, execution)
        self.norm = RMSNorm(c.decoder.norm_eps)
        self.head = head(c.vocab_size, execution)

    def context(self, latents: Float[Array, "B P G"]) -> tuple[Context, ...]:
        """Computes cross-attention keys and values of patches, for each cross-attention layer."""
        x = self.split(latents).reshape(
            *latents.shape[:2], self.config.patch_vectors, self.config.decoder.dim
        )
        return tuple(Context(*cross.keys_values(x)) for cross in self.cross)

    def __call__(
        self,
        ids: Int[Array, "B W"],
        encoded: Float[Array, "B W D"] | None,
        contexts: tuple[Context, ...],
        caches: Caches | None = None,
        *,
        patch: Int[Array, "B W"],
        span: Span,
    ) -> tuple[Float[Array, "B W V"], Caches | None]:
        """Computes float32 next-byte logits after each byte of a window.

        Args:
          ids: ids of the window.
          encoded: encoder states of the window; unused if the decoder embeds the bytes itself.
          contexts: from `context`, one per cross-attention layer. Patch p is in slot `p % P`.
          caches: self-attention caches, or None for whole texts.
          patch: index of the patch whose latent each byte reads.
          span: positions of the window and what each of them attends to.

        Returns:
          The logits, and the caches with the window written to them.
        """
        x = self.embed(ids) if self.config.decoder_input == "embedding" else encoded
        attend = functools.partial(kv_cache.attend, span=span)
        x, caches = self.layers(
            x, contexts, caches, patch=patch, positions=span.positions, attend=attend
        )
        return self.logits(x), caches

    def extend(
        self,
        ids: Int[Array, "B W"],
        caches: Caches,
        *,
        contexts: tuple[Context, ...],
        start: Int[Array, " B"],
        patch: Int[Array, "B W"],
        first: Int[Array, "B W"],
        causal: int,
    ) -> tuple[Float[Array, "B W V"], Caches]:
        """Runs a decoder that embeds bytes itself on ids from position `start` on.

        Returns the logits and the updated caches.

        Args:
          ids: bytes, and MASK where a byte is to be filled in.
          caches: self-attention caches before `start`.
          contexts: rings of the keys and values of the latents.
          start: position of the first id.
          patch: index of the patch whose latent each id reads.
          first: first position that each id attends to, apart from the attention window.
          causal: number of leading ids that attend causally and predict the next byte. The others,
            if any, are the cells of one block, which predict their own byte; see
            `kv_cache.with_block` for what they attend to.
        """
        positions = start[:, None] + jnp.arange(ids.shape[1])
        span = kv_cache.causal_span(positions, window=self.config.decoder.window, first=first)
        span = kv_cache.with_block(span, causal)
        logits, written = self(ids, None, contexts, caches, patch=patch, span=span)
        assert written is not None  # as caches were passed
        return logits, written

    def states(
        self,
        ids: Int[Array, "B W"],
        encoded: Float[Array, "B W E"] | None,
        contexts: tuple[Context, ...],
        caches: Caches | None = None,
        *,
        patch: Int[Array, "B W"],
        span: Span,
    ) -> tuple[tuple[Float[Array, "B W D"], ...], Caches | None]:
        """As `__call__`, but with the hidden states after each layer."""
        x = self.embed(ids) if self.config.decoder_input == "embedding" else encoded
        attend = functools.partial(kv_cache.attend, span=span)
        how = {"patch": patch, "positions": span.positions, "attend": attend}
        return self._unrolled(x, contexts, caches, **how)

    def joint(
        self,
        ids: Int[Array, "B S"],
        contexts: tuple[Context, ...],
        blocks: Blocks,
        *,
        patch: Int[Array, "B S"],
        span: Span,
    ) -> Joint:
        """Runs whole texts and masked blocks of their bytes in one pass (Fast BLT, section 2.1.2).

        The clean bytes attend causally and never to a block. A cell attends to the clean bytes
        before its block, to all cells of its own block, and to the latent of the latest patch that
        closed before the block.

        Args:
          ids: the clean texts.
          contexts: from `context`.
          blocks: blocks of the texts, with masked bytes.
          patch: index of the patch whose latent each clean byte reads.
          span: causal span of the clean bytes.
        """
        batch, length = ids.shape
        cells = blocks.positions()
        before = jnp.take_along_axis(patch, jnp.maximum(blocks.start - 1, 0), axis=1)
        before = jnp.broadcast_to(before[..., None], cells.shape).reshape(batch, -1)
        x, _ = self.layers(
            self.embed(jnp.concatenate([ids, blocks.ids.reshape(batch, -1)], axis=1)),
            contexts,
            None,
            patch=jnp.concatenate([patch, before], axis=1),
            positions=jnp.concatenate([span.positions, cells.reshape(batch, -1)], axis=1),
            attend=functools.partial(block_attention.attend, span=span, blocks=blocks),
        )
        logits = self.logits(x)
        return Joint(logits[:, :length], logits[:, length:].reshape(*cells.shape, -1))

    def layers(self, x, contexts, caches, **how):
        """Runs all blocks, each after its cross-attention; returns states and written caches."""
        whole = caches is None and not self.is_initializing()
        several = min(self.config.decoder.layers, len(self.cross)) > 1
        if self.execution.scan and whole and several:
            return self._scanned(x, contexts, **how), None
        hidden, caches = self._unrolled(x, contexts, caches, **how)
        return hidden[-1], caches

    def _unrolled(self, x, contexts, caches, **how):
        """The states after each block, and the caches."""
        hidden, written = [], []
        for index in range(self.config.decoder.layers):
            x, cache = self._layer(index, x, contexts, caches and caches[index], **how)
            hidden.append(x)
            written.append(cache)
        return tuple(hidden), caches and tuple(written)

    def _layer(self, index, x, contexts, cache, *, patch, **how):
        """One block, after its cross-attention."""
        if index < len(self.cross):
            x = self.read_latent(index, x, contexts[index], patch)
        return self.trunk.layers[index](x, cache, **how)

    def _scanned(self, x, contexts, **how):
        """Runs the blocks as a `lax.scan` over stacked parameters; see `Transformer._scanned`."""
        first_layer = self.clone(parent=None)

        def step(x, layer):
            params, context = layer
            variables = {"params": params}
            return first_layer.apply(variables, 0, x, (context,), None, method="_layer", **how)

        params = self.variables["params"]
        trunk = params["trunk"]
        layers = [
            {"cross_0": params[f"cross_{index}"], "trunk": {"layers_0": trunk[f"layers_{index}"]}}
            for index in range(self.config.decoder.layers)
        ]
        return jax.lax.scan(step, x, (stacked(layers), stacked(contexts)))[0]

    def logits(self, hidden: Float[Array, "B W D"]) -> Float[Array, "B W V"]:
        """Applies the final norm and the output layer; the logits are float32."""
        return self.execution.logits(self.norm, self.head, hidden)

    def read_latent(
        self,
        layer: int,
        x: Float[Array, "B W D"],
        context: Context,
        patch: Int[Array, "B W"],
    ) -> Float[Array, "B W D"]:
        """Adds to each byte's state the cross-attention to the k vectors of one patch.

        Args:
          layer: index of the cross-attention.
          x: hidden states of the bytes.
          context: keys and values of the patches for this layer.
          patch: index of the patch that each byte reads.
        """
        cross = self.cross[layer]
        return cross.residual(x, cross.read_one(cross.queries(x), *context, patch))
