"""The local decoder: each byte reads the latent of one patch, and predicts the byte after it.

Source: BLT (arXiv 2412.09871, section 3.3); the joint pass is Fast BLT's (arXiv 2605.08044).
"""

import functools
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models import block_attention, kv_cache
from bytelax.models.attention import CrossAttention
from bytelax.models.block_attention import Blocks
from bytelax.models.blt.config import BLTConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import Embedding, RMSNorm, head, project
from bytelax.models.transformer import Transformer, stacked
from bytelax.pods.sharding import BATCH


class Context(NamedTuple):
    """Keys and values of patches for one decoder layer's cross-attention, k vectors a patch."""

    keys: Float[Array, "B P k K d"]
    values: Float[Array, "B P k K d"]

    logical_axes = (BATCH, None, None, "kv_head", "head_dim")


class Joint(NamedTuple):
    """Logits of texts and of blocks of their bytes."""

    clean: Float[Array, "B S V"]  # of the byte after each clean byte
    cells: Float[Array, "B M C V"]  # of the cells' own bytes
    exits: Float[Array, "B S V"] | None  # as `clean`, from an earlier layer


class Decoder(nn.Module):
    """The local decoder. Before a layer's block, each byte reads the latent of one patch."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        if c.decoder_input == "embedding":
            self.embed = Embedding(c.vocab_size, c.decoder.dim, execution=execution)
        self.split = project(c.patch_vectors * c.decoder.dim)
        self.cross = [CrossAttention(c.decoder, execution) for _ in range(c.decoder_cross_layers)]
        self.trunk = Transformer(c.decoder, execution)
        self.norm = RMSNorm(c.decoder.norm_eps)
        self.head = head(c.vocab_size)

    def context(self, latents: Float[Array, "B P G"]) -> tuple[Context, ...]:
        """Cross-attention keys and values of patches, for each layer that has one."""
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
        depth: int | None = None,
    ) -> tuple[Float[Array, "B W V"], Caches | None]:
        """Next-byte logits, float32.

        Args:
          ids: the window's bytes.
          encoded: their encoder states; unused when the decoder embeds the bytes itself.
          contexts: from `context`, one a cross-attention layer, patches in rings of P slots.
          caches: self-attention caches.
          patch: the patch whose latent each byte reads.
          span: positions of the window.
          depth: number of layers to run before the head: an early exit. None: all.
        """
        x = self.embed(ids) if self.config.decoder_input == "embedding" else encoded
        attend = functools.partial(kv_cache.attend, span=span)
        x, caches = self.layers(
            x, contexts, caches, patch=patch, positions=span.positions, attend=attend, depth=depth
        )
        return self.logits(x), caches

    def joint(
        self,
        ids: Int[Array, "B S"],
        contexts: tuple[Context, ...],
        blocks: Blocks,
        *,
        patch: Int[Array, "B S"],
        span: Span,
        exit_layer: int | None = None,
    ) -> Joint:
        """Whole texts and blocks of their bytes, masked, in one pass (Fast BLT, section 2.1.2).

        The clean half is causal and never sees a block. A cell sees the clean bytes strictly before
        its block, all cells of its own block, and the latent of the latest patch that closed before
        the block. With `exit_layer` the head also reads the clean bytes behind that layer.
        """
        batch, length = ids.shape
        cells = blocks.positions()
        before = jnp.take_along_axis(patch, jnp.maximum(blocks.start - 1, 0), axis=1)
        before = jnp.broadcast_to(before[..., None], cells.shape).reshape(batch, -1)
        run = functools.partial(
            self.layers,
            contexts=contexts,
            caches=None,
            patch=jnp.concatenate([patch, before], axis=1),
            positions=jnp.concatenate([span.positions, cells.reshape(batch, -1)], axis=1),
            attend=functools.partial(block_attention.attend, span=span, blocks=blocks),
        )
        x = self.embed(jnp.concatenate([ids, blocks.ids.reshape(batch, -1)], axis=1))
        exits = None
        if exit_layer is not None:
            x, _ = run(x, depth=exit_layer)
            exits = self.logits(x[:, :length])
        x, _ = run(x, first=exit_layer or 0)
        logits = self.logits(x)
        return Joint(logits[:, :length], logits[:, length:].reshape(*cells.shape, -1), exits)

    def layers(self, x, contexts, caches, *, patch, positions, attend, first=0, depth=None):
        """The blocks, each behind its cross-attention. Caches of layers not run are left out."""
        run = range(self.config.decoder.layers)[first:depth]
        whole = caches is None and not self.is_initializing()
        if self.execution.scan and whole and len(run) > 1 and len(self.cross) > 1:
            how = {"patch": patch, "positions": positions, "attend": attend}
            return self._scanned(x, contexts[first:depth], run, **how), None
        written = []
        for index in run:
            layer = self.trunk.layers[index]
            if index < len(self.cross):
                x = self.read_latent(index, x, contexts[index], patch)
            x, cache = layer(x, caches and caches[index], positions=positions, attend=attend)
            written.append(cache)
        return x, caches and tuple(written)

    def _scanned(self, x, contexts, run, **how):
        """A loop over the blocks in `run`; see `Transformer`."""
        first_layer = self.clone(parent=None)

        def step(x, layer):
            params, context = layer
            variables = {"params": params}
            return first_layer.apply(
                variables, x, (context,), None, depth=1, method="layers", **how
            )

        params = self.variables["params"]
        trunk = params["trunk"]
        layers = [
            {"cross_0": params[f"cross_{index}"], "trunk": {"layers_0": trunk[f"layers_{index}"]}}
            for index in run
        ]
        return jax.lax.scan(step, x, (stacked(layers), stacked(contexts)))[0]

    def logits(self, hidden: Float[Array, "B W D"]) -> Float[Array, "B W V"]:
        return self.head(self.norm(hidden)).astype(jnp.float32)

    def read_latent(
        self,
        layer: int,
        x: Float[Array, "B W D"],
        context: Context,
        patch: Int[Array, "B W"],
    ) -> Float[Array, "B W D"]:
        """Each byte attends to the k vectors of one patch."""
        c = self.config.decoder
        slot = (patch % context.keys.shape[1])[..., None, None, None]
        keys, values = (jnp.take_along_axis(part, slot, axis=1) for part in context)
        cross = self.cross[layer]
        queries = cross.queries(x)
        queries = queries.reshape(*x.shape[:2], c.kv_heads, c.heads // c.kv_heads, c.head_dim)
        # k is 2 or 4: products and sums, not a matmul a byte.
        scores = (queries[:, :, None] * keys[..., None, :]).astype(jnp.float32).sum(-1)
        weights = jax.nn.softmax(scores * c.head_dim**-0.5, axis=2)[..., None]
        attended = (weights.astype(x.dtype) * values[..., None, :]).sum(2)
        return cross.residual(x, attended.reshape(*x.shape[:2], c.heads, c.head_dim))
