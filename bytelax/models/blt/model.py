"""The Byte Latent Transformer's forward pass, over whole texts or over the next window of texts."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.calculator import Sizes
from bytelax.models import kv_cache, layers, patching, ring
from bytelax.models.block_attention import Blocks
from bytelax.models.blt.decoder import Decoder
from bytelax.models.blt.encoder import Encoder, Global
from bytelax.models.byte_lm import ByteLM, last_eos_before
from bytelax.models.byte_model import ByteModel
from bytelax.models.configs import BLTConfig
from bytelax.models.execution import EXACT, Execution
from bytelax.models.kv_cache import Caches, KVCache, Span
from bytelax.models.patching import Frontier, Patches
from bytelax.pods.sharding import TENSOR

_NETWORKS = ("encoder", "global_transformer", "decoder", "patcher")


class ByteCaches(NamedTuple):
    """Caches of the networks over bytes, except the decoder. All are None for whole texts."""

    patcher: Caches | None = None
    encoder: Caches | None = None
    cross: KVCache | None = None  # the encoder's cross-attention keys and values of every byte


WHOLE_TEXT = ByteCaches()


class EncodedWindow(NamedTuple):
    """A window of bytes, divided into patches and encoded."""

    positions: Int[Array, "B W"]
    entropies: Float[Array, "B W"]  # nats; zeros if the patching mode needs none
    closes: Bool[Array, "B W"]  # whether a byte is the last of its patch
    states: Float[Array, "B W D"]  # encoder states
    frontier: Frontier  # axes [B, W + 1]: entry w is the frontier after w bytes of the window
    bytes_seen: KVCache  # the encoder's cross-attention keys and values, by position

    @property
    def patch(self) -> Int[Array, "B W"]:
        """Index of the patch whose latent the decoder reads at each byte: the latest closed one."""
        return self.frontier.patches[:, 1:] - 1

    def span(self, window: int | None) -> Span:
        """The causal span of the bytes in a stack whose attention window is `window`."""
        first = self.frontier.last_eos[:, :-1] + 1
        return kv_cache.causal_span(self.positions, window=window, first=first)


class EncodedText(NamedTuple):
    """Whole texts after everything but the decoder."""

    entropies: Float[Array, "B S"]  # nats; zeros if the patching mode needs none
    closes: Bool[Array, "B S"]  # whether a byte is the last of its patch
    states: Float[Array, "B S D"]  # encoder states
    latents: Float[Array, "B P G"]  # outputs of the global transformer, in order of the patches
    patch: Int[Array, "B S"]  # index of the patch whose latent the decoder reads at each byte
    span: Span  # what each byte attends to in the decoder


class Forward(NamedTuple):
    """Outputs of the forward pass over whole texts."""

    logits: Float[Array, "B S V"]  # for the byte after each byte, float32
    entropies: Float[Array, "B S"]  # nats; zeros if the patching mode needs none
    closes: Bool[Array, "B S"]  # whether a byte is the last of its patch
    latents: Float[Array, "B P G"]  # outputs of the global transformer, in order of the patches


class BLT(ByteModel):
    """A Byte Latent Transformer (arXiv 2412.09871).

    A forward pass calls `read`, then `latents` for the patches that close, then the decoder. With
    caches the pass continues a text; without caches the window is the whole text.

    The entropy model has float32 parameters and runs at the highest precision, whatever the dtype
    of the rest. Otherwise the patches of a text could depend on the shape of the batch.
    """

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        if c.patcher is not None:
            exact = dataclasses.replace(execution, precision=EXACT.precision, tensor_axis=None)
            self.patcher = ByteLM(c.patcher, exact)
        self.encoder = Encoder(c, execution)
        self.global_transformer = Global(c, execution)
        self.decoder = Decoder(c, execution)

    def __call__(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> Float[Array, "B S V"]:
        """Computes float32 next-byte logits after every position of whole texts.

        Args:
          ids: right-padded texts that start with BOS. The model is causal, so padding does not
            change the logits at earlier positions.
          max_patches: as in `encode`.
        """
        return self.forward(ids, max_patches=max_patches).logits

    def forward(
        self,
        ids: Int[Array, "B S"],
        *,
        max_patches: int | None = None,
        read: Callable[..., Float[Array, "B P G"]] | None = None,
    ) -> Forward:
        """Computes the logits of whole texts, and their entropies, patches and latents.

        Args:
          ids: as in `__call__`.
          max_patches: as in `encode`.
          read: what the decoder reads in place of the latents, as a `latents.Replace`; None for the
            latents themselves.
        """
        text = self.encode(ids, max_patches=max_patches)
        latents = text.latents if read is None else read(text.latents, text.closes.sum(1))
        contexts = self.decoder.context(latents)
        logits, _ = self.decoder(ids, text.states, contexts, patch=text.patch, span=text.span)
        return Forward(logits, text.entropies, text.closes, text.latents)

    def states(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[tuple[Float[Array, "B S _"], ...], Bool[Array, "B S"]]:
        """The states of each byte of whole texts, and whether it is the last of its patch.

        The states are the latent that the byte reads, and those after each layer of the decoder.

        Args:
          ids: right-padded texts.
          max_patches: as in `encode`.
        """
        text = self.encode(ids, max_patches=max_patches)
        hidden = self.states_under(ids, text, text.latents)
        return (ring.at(text.latents, text.patch), *hidden), text.closes

    def states_under(
        self, ids: Int[Array, "B S"], text: EncodedText, latents: Float[Array, "B P G"]
    ) -> tuple[Float[Array, "B S D"], ...]:
        """The states after each layer of the decoder, with these latents in place of its own.

        Args:
          ids: right-padded texts.
          text: the texts, from `encode`.
          latents: one for each patch.
        """
        hidden, _ = self.decoder.states(
            ids,
            text.states,
            self.decoder.context(latents),
            patch=text.patch,
            span=text.span,
        )
        return hidden

    def masked_blocks(
        self,
        ids: Int[Array, "B S"],
        start: Int[Array, "B M"],
        *,
        size: int,
        max_patches: int | None = None,
    ) -> Float[Array, "B M C V"]:
        """The logits of blocks of masked bytes, for a model with `block_size`.

        Args:
          ids: right-padded texts.
          start: position of the first byte of each block, at least 1.
          size: C, number of bytes in a block.
          max_patches: as in `encode`.
        """
        text = self.encode(ids, max_patches=max_patches)
        cells = jnp.full((*start.shape, size), vocab.MASK)
        joint = self.decoder.joint(
            ids,
            self.decoder.context(text.latents),
            Blocks(cells, start, jnp.full_like(start, size)),
            patch=text.patch,
            span=text.span,
        )
        return joint.cells

    def embed(self, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """The embedding of bytes, as wide as the decoder, for heads to read."""
        own = self.config.decoder_input == "embedding"
        return (self.decoder if own else self.encoder).embed(ids)

    def looked_up(self, ids: Int[Array, "B S"]) -> Float[Array, "B S E"]:
        """What the encoder looks up of each byte of whole texts; see `Encoder.looked_up`."""
        before = ((0, 0), (self.config.hashing.history, 0))
        return self.encoder.looked_up(jnp.pad(ids, before, constant_values=vocab.BOE))

    def norm(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """The decoder's last norm."""
        return self.decoder.norm(hidden)

    def logits(self, hidden: Float[Array, "B W D"]) -> Float[Array, "B W V"]:
        """The decoder's head on the output of any of its layers."""
        return self.decoder.logits(hidden)

    def encode(self, ids: Int[Array, "B S"], *, max_patches: int | None = None) -> EncodedText:
        """Runs the entropy model, the encoder and the global transformer over whole texts.

        Args:
          ids: right-padded texts.
          max_patches: static capacity for closed patches per text, by default one per byte. Further
            patches are dropped without an error, so only pass a number that no text exceeds.
        """
        batch, length = ids.shape
        window, _ = self.read(
            ids, patching.beginning(batch, self.config), start=jnp.zeros(batch, jnp.int32)
        )
        nth = jnp.arange(max_patches or length)
        candidates = patching.candidates(window.frontier, window.closes, window.positions)
        closing = patching.closing_patches(candidates, nth)
        latents, _ = self.latents(closing, window.bytes_seen, newest=window.positions[:, -1])
        span = window.span(self.config.decoder.window)
        return EncodedText(
            window.entropies, window.closes, window.states, latents, window.patch, span
        )

    def read(
        self,
        ids: Int[Array, "B W"],
        before: Frontier,
        caches: ByteCaches = WHOLE_TEXT,
        *,
        start: Int[Array, " B"],
    ) -> tuple[EncodedWindow, ByteCaches]:
        """Divides a window into patches and encodes its bytes.

        Args:
          ids: ids of the window.
          before: the frontier before the window.
          caches: caches of the text before the window; `WHOLE_TEXT` if the window is a whole text.
          start: position of the first byte of the window.

        Returns:
          The window, and the caches with the window written to them.
        """
        c = self.config
        positions = start[:, None] + jnp.arange(ids.shape[1])
        last_eos = last_eos_before(ids, before.last_eos, mask=c.mask_documents, start=start)
        span = functools.partial(kv_cache.causal_span, positions, first=last_eos[:, :-1] + 1)
        entropies, patcher = self._entropies(ids, caches.patcher, span)
        open_patch = patching.open_patches(
            before.open_patch, entropies, positions, config=c.patching
        )
        history = jnp.concatenate([before.history, ids], axis=1)
        states, encoder = self.encoder(history, caches.encoder, span=span(window=c.encoder.window))
        keys, values = self.encoder.cross.keys_values(states)
        if caches.cross is None:
            cross = KVCache(keys.swapaxes(1, 2), values.swapaxes(1, 2))
        else:
            cross = kv_cache.write(caches.cross, keys, values, positions)
        frontier = patching.advanced(
            before, ids, states, positions=positions, open_patch=open_patch, last_eos=last_eos
        )
        closes = patching.closing(open_patch, positions)
        window = EncodedWindow(positions, entropies, closes, states, frontier, cross)
        return window, ByteCaches(patcher, encoder, cross)

    def latents(
        self,
        patches: Patches,
        bytes_seen: KVCache,
        caches: Caches | None = None,
        *,
        newest: Int[Array, " B"],
    ) -> tuple[Float[Array, "B P G"], Caches | None]:
        """Pools the bytes of patches and runs the global transformer over them.

        Args:
          patches: the patches, in the order of the text.
          bytes_seen: the encoder's cross-attention keys and values, from `read`.
          caches: caches of the global transformer, up to the first of the patches; None for whole
            texts.
          newest: position of the latest byte in `bytes_seen`.

        Returns:
          One latent per patch, and the caches with the patches written to them.
        """
        c = self.config
        pooled = self.encoder.patches(
            patches.pool,
            bytes_seen,
            first=patches.first,
            last=patches.last,
            newest=newest,
            block_kv=None if caches is None else kv_cache.BLOCK_KV,
            longest=c.patching.max_patch_length,
        )
        span = kv_cache.causal_span(
            patches.index, window=c.global_transformer.window, first=patches.document
        )
        return self.global_transformer(pooled, caches, span=span)

    def _entropies(self, ids, caches, span):
        patcher = self.config.patcher
        if patcher is None or self.config.patching.mode != "entropy":
            return jnp.zeros(ids.shape, jnp.float32), caches
        logits, caches = self.patcher.extend(ids, caches, span=span(window=patcher.trunk.window))
        return patching.next_byte_entropy(logits), caches

    def predict(
        self,
        ids: Int[Array, "B S"],
        *,
        max_patches: int | None = None,
        read: Callable[..., Float[Array, "B P G"]] | None = None,
    ) -> tuple[Float[Array, "B S V"], Bool[Array, "B S"]]:
        """Computes next-byte logits of whole texts and whether each byte is the last of its patch.

        Arguments are those of `forward`.
        """
        out = self.forward(ids, max_patches=max_patches, read=read)
        return out.logits, out.closes

    def entropies(self, ids: Int[Array, "B S"]) -> Float[Array, "B S"]:
        """Computes next-byte entropies of whole texts, in nats.

        They are those of the entropy model if it decides the patches, else those of this model.
        """
        if self.config.patching.mode == "entropy":
            return self.patcher.entropies(ids)
        return patching.next_byte_entropy(self(ids))

    @nn.nowrap
    def logical_axes(self) -> dict:
        """The logical axes of every parameter; those of the entropy model start with `patcher_`.

        The separate names let the rules in `pods.sharding` replicate the entropy model during
        decoding, so that a text has the same patches on any number of devices.
        """
        axes = layers.logical_axes(self)
        if "patcher" not in axes:
            return axes
        named = jax.tree.map(
            lambda names: tuple(name and f"patcher_{name}" for name in names),
            axes["patcher"],
            is_leaf=lambda node: isinstance(node, tuple),
        )
        return axes | {"patcher": named}

    @nn.nowrap
    def device_shard(self, devices: int) -> "BLT":
        """As `ByteModel.device_shard`; see `pods.sharding`."""
        if devices == 1:
            return self
        c = self.config
        shard = dataclasses.replace(
            c,
            encoder=c.encoder.device_shard(devices),
            global_transformer=c.global_transformer.device_shard(devices),
            decoder=c.decoder.device_shard(devices),
            heads=c.heads and c.heads.device_shard(c.decoder, devices),
        )
        return self.clone(
            config=shard,
            execution=dataclasses.replace(self.execution, tensor_axis=TENSOR),
        )

    @nn.nowrap
    def weights_per_pass(self, params: dict) -> Sizes:
        """As `ByteModel.weights_per_pass`."""
        size = {name: layers.weights(params.get(name, {})) for name in _NETWORKS}
        return Sizes(
            decoder=size["decoder"],
            encoder=size["encoder"],
            global_=size["global_transformer"],
            patcher=size["patcher"],
        )
