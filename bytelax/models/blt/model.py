"""The whole model: one forward pass, over a whole text or over the next window of one."""

import dataclasses
import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.calculator import Sizes
from bytelax.models import entropy, kv_cache, layers, patching
from bytelax.models.blt import patches as patches_lib
from bytelax.models.blt.config import BLTConfig
from bytelax.models.blt.decoder import Decoder
from bytelax.models.blt.encoder import Encoder
from bytelax.models.blt.global_transformer import Global
from bytelax.models.blt.patches import Frontier, Patches
from bytelax.models.byte_lm import ByteLM, last_eos_before
from bytelax.models.execution import EXACT, Execution
from bytelax.models.kv_cache import Caches, KVCache, Span
from bytelax.pods.sharding import TENSOR

_NETWORKS = ("encoder", "global_transformer", "decoder", "patcher")
_KEYS = ("key_value", "key_norm")  # of a cross-attention


class ByteCaches(NamedTuple):
    """Caches of the networks that run over bytes, the decoder aside. None: a whole text."""

    patcher: Caches | None = None
    encoder: Caches | None = None
    cross: KVCache | None = None  # the encoder's cross-attention keys of every byte


WHOLE_TEXT = ByteCaches()


class Window(NamedTuple):
    """Bytes behind a state, cut into patches and encoded."""

    positions: Int[Array, "B W"]
    entropies: Float[Array, "B W"]  # nats; zeros where the patching needs none
    closes: Bool[Array, "B W"]  # whether a byte is the last of its patch
    states: Float[Array, "B W D"]  # of the encoder
    frontier: Frontier  # [B, W + 1]: slot w is the frontier once w bytes are kept
    bytes_seen: KVCache  # the encoder's cross-attention keys and values, by position

    @property
    def patch(self) -> Int[Array, "B W"]:
        """The patch whose latent each byte's decoder row reads: the latest that closed."""
        return self.frontier.patches[:, 1:] - 1

    def span(self, window: int | None) -> Span:
        """What each byte sees of the bytes, in a stack with this attention window."""
        first = self.frontier.last_eos[:, :-1] + 1
        return kv_cache.causal_span(self.positions, window=window, first=first)


class Encoded(NamedTuple):
    """What the pass over whole texts knows before the decoder."""

    entropies: Float[Array, "B S"]
    closes: Bool[Array, "B S"]
    states: Float[Array, "B S D"]
    latents: Float[Array, "B P G"]  # global outputs of the closed patches, in order
    patch: Int[Array, "B S"]
    span: Span  # what each byte sees in the decoder


class Forward(NamedTuple):
    """The pass over whole texts."""

    logits: Float[Array, "B S V"]
    entropies: Float[Array, "B S"]
    closes: Bool[Array, "B S"]
    latents: Float[Array, "B P G"]


class BLT(nn.Module):
    """A Byte Latent Transformer.

    A forward pass is `read`, then `latents` of the patches that close, then the decoder. With
    caches it continues a text; without them it starts one, and the window is all of it.

    The patcher's parameters are float32 and run at the highest precision whatever the rest is in:
    the same text would otherwise be cut differently at another shape.
    """

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        if c.patcher is not None:
            exact = {"precision": EXACT.precision, "tensor_axis": None}
            self.patcher = ByteLM(c.patcher, dataclasses.replace(execution, **exact))
        self.encoder = Encoder(c, execution)
        self.global_transformer = Global(c, execution)
        self.decoder = Decoder(c, execution)

    def __call__(self, ids: Int[Array, "B S"], *, max_patches: int | None = None) -> Forward:
        """Logits after every position of whole texts, BOS first.

        Args:
          ids: right-padded texts; what follows a position never changes its logits.
          max_patches: as in `encode`.
        """
        text = self.encode(ids, max_patches=max_patches)
        contexts = self.decoder.context(text.latents)
        logits, _ = self.decoder(ids, text.states, contexts, patch=text.patch, span=text.span)
        return Forward(logits, text.entropies, text.closes, text.latents)

    def encode(self, ids: Int[Array, "B S"], *, max_patches: int | None = None) -> Encoded:
        """Everything before the decoder, of whole texts.

        Args:
          ids: right-padded texts.
          max_patches: closed patches the pass has room for, by default one a byte. Patches beyond
            it are dropped, so pass less only where a text is known to have less.
        """
        batch, length = ids.shape
        window, _ = self.read(
            ids, patches_lib.beginning(batch, self.config), start=jnp.zeros(batch, jnp.int32)
        )
        nth = jnp.arange(max_patches or length)
        closing = patches_lib.closing_patches(window.frontier, window.closes, window.positions, nth)
        latents, _ = self.latents(closing, window.bytes_seen, newest=window.positions[:, -1])
        span = window.span(self.config.decoder.window)
        return Encoded(window.entropies, window.closes, window.states, latents, window.patch, span)

    def read(
        self,
        ids: Int[Array, "B W"],
        before: Frontier,
        caches: ByteCaches = WHOLE_TEXT,
        *,
        start: Int[Array, " B"],
    ) -> tuple[Window, ByteCaches]:
        """Cuts a window into patches and encodes its bytes.

        Args:
          ids: the window.
          before: the frontier before it.
          caches: up to the window; none where it starts a text.
          start: position of its first byte.

        Returns:
          The window, and the caches with it in them.
        """
        c = self.config
        positions = start[:, None] + jnp.arange(ids.shape[1])
        last_eos = last_eos_before(ids, mask=c.mask_documents, state=before.last_eos, start=start)
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
        frontier = patches_lib.advanced(
            before, ids, states, positions=positions, open_patch=open_patch, last_eos=last_eos
        )
        closes = patching.closing(open_patch, positions)
        window = Window(positions, entropies, closes, states, frontier, cross)
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
          patches: in the order of the text.
          bytes_seen: from `read`.
          caches: the global transformer's, up to the first of the patches; None where it is the
            first of its text.
          newest: position of the latest byte in `bytes_seen`.

        Returns:
          One latent a patch, and the caches with the patches in them.
        """
        c = self.config
        pooled = self.encoder.patches(
            patches.pool,
            bytes_seen,
            first=patches.first,
            last=patches.last,
            newest=newest,
            block=None if caches is None else kv_cache.BLOCK,
            longest=c.patching.max_patch_length,
        )
        span = kv_cache.causal_span(
            patches.index, window=c.global_transformer.window, first=patches.document
        )
        return self.global_transformer(pooled, caches, span=span)

    def _entropies(self, ids, caches, span):
        if self.config.patching.mode != "entropy":
            return jnp.zeros(ids.shape, jnp.float32), caches
        trunk = self.config.patcher.trunk
        logits, caches = self.patcher.window(ids, caches, span=span(window=trunk.window))
        return entropy.next_byte_entropy(logits), caches

    def predict(
        self, ids: Int[Array, "B S"], *, max_patches: int | None = None
    ) -> tuple[Float[Array, "B S V"], Bool[Array, "B S"]]:
        """Next-byte logits of whole texts, and whether each byte is the last of its patch."""
        out = self(ids, max_patches=max_patches)
        return out.logits, out.closes

    def entropies(self, ids: Int[Array, "B S"]) -> Float[Array, "B S"]:
        """Next-byte entropies of whole texts, nats: the entropy model's, if it cuts the patches."""
        if self.config.patching.mode == "entropy":
            return self.patcher.entropies(ids)
        return entropy.next_byte_entropy(self(ids).logits)

    @nn.nowrap
    def target(self) -> Any:
        """What decodes with this module, in `decode.Method`."""
        from bytelax.decode.targets.blt import BLTTarget  # decoding builds on models

        return BLTTarget(self)

    @nn.nowrap
    def logical_axes(self) -> dict:
        """The logical axes of every parameter; those of the entropy model have names of their own.

        See `pods.sharding`: the entropy model is whole on every device that decodes, so that a text
        is cut into the same patches, to the last bit, on any number of devices.
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
        """The model as one of several devices runs it, which share its heads and hidden units.

        See `pods.per_device`.
        """
        if devices == 1:
            return self
        c = self.config
        stacks = ("encoder", "global_transformer", "decoder")
        shards = {name: getattr(c, name).device_shard(devices) for name in stacks}
        return self.clone(
            config=dataclasses.replace(c, **shards),
            execution=dataclasses.replace(self.execution, tensor_axis=TENSOR),
        )

    @nn.nowrap
    def weights_per_pass(self, params: dict, *, by_pass: bool = False) -> Sizes:
        """Number of weights that a pass of each network reads, embeddings aside.

        Args:
          params: of the model.
          by_pass: count with the global transformer what runs in its passes: pooling, and the keys
            and values that the decoder reads of a patch.
        """
        networks = {name: dict(params.get(name, {})) for name in _NETWORKS}
        closing = {}
        if by_pass:
            encoder, decoder = networks["encoder"], networks["decoder"]
            cross = encoder.pop("cross")
            encoder["cross"] = {name: cross[name] for name in _KEYS}
            closing["pooling"] = {name: x for name, x in cross.items() if name not in _KEYS}
            closing["encoder_split"] = encoder.pop("split")
            closing["decoder_split"] = decoder.pop("split")
            for name in [name for name in decoder if name.startswith("cross_")]:
                cross = decoder.pop(name)
                decoder[name] = {part: x for part, x in cross.items() if part not in _KEYS}
                closing[name] = {part: cross[part] for part in _KEYS}
        size = {name: layers.weights(part) for name, part in networks.items()}
        return Sizes(
            decoder=size["decoder"],
            encoder=size["encoder"],
            global_=size["global_transformer"] + layers.weights(closing),
            patcher=size["patcher"],
        )

    @nn.nowrap
    def cached_per_pass(self, context: int, *, bytes_per_patch: float | None = None) -> Sizes:
        """Number of keys and values that a pass of each network reads of a row.

        Args:
          context: bytes in the row.
          bytes_per_patch: mean length of its patches.
        """
        c = self.config
        return Sizes(
            decoder=c.decoder.cached_numbers(context),
            encoder=c.encoder.cached_numbers(context),
            global_=c.global_transformer.cached_numbers(context / bytes_per_patch),
            patcher=c.patcher.trunk.cached_numbers(context) if c.patcher else 0,
        )
