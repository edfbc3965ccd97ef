"""The Byte Latent Transformer (arXiv 2412.09871): local encoder, global transformer, local decoder.

Bytes are grouped into patches. The encoder turns the bytes of a closed patch into k vectors, the
global transformer runs over closed patches only, and the decoder's byte at t reads the latent of
the latest patch closed at t: the predictive rule, under which nothing ever reads an open patch.
"""

import dataclasses
import functools
from typing import Literal, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.models import block_attention, entropy, hashing, kv_cache, patching
from bytelax.models.block_attention import Blocks
from bytelax.models.byte_lm import ByteLM, ByteLMConfig, last_eos_before
from bytelax.models.hashing import HashConfig
from bytelax.models.kv_cache import Caches, KVCache, Span
from bytelax.models.layers import (
    CrossAttention,
    RMSNorm,
    Transformer,
    TransformerConfig,
    check_max_bytes,
    embedding,
    head,
    project,
)
from bytelax.models.patching import OpenPatch, PatchingConfig

BLOCK = 256  # slots read at a time from the caches that grow with the text


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTConfig:
    """A Byte Latent Transformer.

    Attributes:
      encoder, global_transformer, decoder: the three stacks. Windows count bytes in the encoder
        and the decoder and patches in the global transformer.
      patching: when a patch ends.
      patcher: the entropy model; None when `patching.mode` needs no entropies.
      hashing: the hash n-gram embeddings added to the encoder's byte embedding.
      patch_vectors: k, the vectors a patch is split into in both cross-attentions.
      decoder_cross_attention: "all" layers of the decoder read the latent, or only the "first".
      decoder_input: "encoder" states (BLT as released) or the decoder's own byte "embedding"
        (Fast BLT, arXiv 2605.08044, section 2.1.2), which lets it run without the encoder.
      mask_documents: an EOS ends a document, and bytes and patches do not see past it (Meta's
        code does so, transformers does not).
      block_size: longest block of masked bytes that the decoder was trained to fill in (BLT-D); 0
        where it was not.
      max_bytes: longest text the model is meant for, BOS included.
      vocab_size: ids; the released layout has 260.
    """

    encoder: TransformerConfig
    global_transformer: TransformerConfig
    decoder: TransformerConfig
    patching: PatchingConfig
    patcher: ByteLMConfig | None
    hashing: HashConfig = dataclasses.field(default_factory=HashConfig)
    patch_vectors: int = 2
    decoder_cross_attention: Literal["all", "first"] = "all"
    decoder_input: Literal["encoder", "embedding"] = "encoder"
    mask_documents: bool = False
    block_size: int = 0
    max_bytes: int = 4096
    vocab_size: int = vocab.SIZE

    def __post_init__(self):
        if self.block_size < 0:
            raise ValueError(f"block_size must not be negative, got {self.block_size}")
        if self.block_size and self.decoder_input != "embedding":
            raise ValueError("block_size needs decoder_input='embedding': a MASK has no state")
        if self.patching.mode == "entropy" and self.patcher is None:
            raise ValueError("patching mode 'entropy' needs an entropy model: patcher is None")
        check_max_bytes(self.max_bytes)
        if self.patcher is not None and self.patcher.mask_documents != self.mask_documents:
            raise ValueError("the patcher and the model must agree on mask_documents")
        if self.decoder_cross_attention not in ("all", "first"):
            raise ValueError(
                f"decoder_cross_attention {self.decoder_cross_attention!r} is not all or first"
            )
        if self.decoder_input not in ("encoder", "embedding"):
            raise ValueError(f"decoder_input {self.decoder_input!r} is not encoder or embedding")
        if self.decoder_input == "encoder" and self.encoder.dim != self.decoder.dim:
            raise ValueError(
                f"a decoder of width {self.decoder.dim} cannot read encoder states of width "
                f"{self.encoder.dim}; use decoder_input='embedding'"
            )

    @property
    def decoder_cross_layers(self) -> int:
        return self.decoder.layers if self.decoder_cross_attention == "all" else 1


class Encoder(nn.Module):
    """Byte and hash embeddings, the local encoder, and its pooling of bytes into patches."""

    config: BLTConfig

    def setup(self):
        c = self.config
        self.embed = embedding(c.vocab_size, c.encoder.dim)
        self.hash_embed = embedding(c.hashing.rows, c.encoder.dim)
        self.trunk = Transformer(c.encoder)
        self.split = project(c.patch_vectors * c.encoder.dim)
        self.cross = CrossAttention(c.encoder)

    def __call__(
        self, ids: Int[Array, "B T"], caches: Caches | None = None, *, span: Span
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Encoder states of the W new bytes behind `hashing.history` earlier ids."""
        history = self.config.hashing.history
        hashes = self.hash_embed(hashing.hash_ids(ids, config=self.config.hashing))
        x = self.embed(ids[:, history:])
        for index in range(hashes.shape[2]):
            x = x + hashes[:, :, index]
        return self.trunk(x, caches, span=span)

    def patches(
        self,
        pooled: Float[Array, "B P D"],
        bytes_seen: KVCache,
        *,
        first: Int[Array, "B P"],
        last: Int[Array, "B P"],
        newest: Int[Array, " B"],
        block: int | None = BLOCK,
        longest: int | None = None,
    ) -> Float[Array, "B P kD"]:
        """One vector a patch: k queries from its pooled bytes attend to the bytes `first..last`.

        Args:
          pooled: maximum over the patch of the encoder states.
          bytes_seen: cross-attention keys and values of every byte, by position.
          first: first byte of each patch; beyond `last` where there is no patch.
          last: last byte of each patch.
          newest: latest byte in `bytes_seen`.
          block: as in `verify_attention`. Only without blocks has the pass a gradient.
          longest: no patch has more bytes, and `bytes_seen` never wrapped: each patch then reads
            only so many, where otherwise it would be scored against every byte.
        """
        k = self.config.patch_vectors
        batch, count, dim = pooled.shape
        x = self.split(pooled).reshape(batch, count * k, dim)
        queries = self.cross.queries(x)
        if longest is not None and longest < bytes_seen.keys.shape[2]:
            attended = _attend_to_own_bytes(queries, bytes_seen, first, last, longest)
        else:
            attended = verify_attention(
                queries,
                *bytes_seen,
                first=jnp.repeat(first, k, axis=1),
                last=jnp.repeat(last, k, axis=1),
                newest=newest,
                block=block,
            )
        return self.cross.residual(x, attended).reshape(batch, count, k * dim)


def _attend_to_own_bytes(queries, bytes_seen, first, last, longest):
    """Every patch as a row of its own, beside a cache of the `longest` bytes from its first."""
    batch, count = first.shape
    begin = jnp.clip(first, 0, bytes_seen.keys.shape[2] - longest)

    def own(cache):
        def slots(row, start):
            return jax.lax.dynamic_slice_in_dim(row, start, longest, axis=1)

        own = jax.vmap(jax.vmap(slots, (None, 0)))(cache, begin)
        return own.reshape(batch * count, *own.shape[2:])

    attended = verify_attention(
        queries.reshape(batch * count, -1, *queries.shape[2:]),
        *map(own, bytes_seen),
        first=_a_row_each(first - begin, queries),
        last=_a_row_each(last - begin, queries),
        newest=jnp.full(batch * count, longest - 1),
    )
    return attended.reshape(queries.shape)


def _a_row_each(at, queries):
    """[B, P] as [B P, k], for P k queries a row."""
    return jnp.repeat(at.reshape(-1, 1), queries.shape[1] // at.shape[1], axis=1)


class Global(nn.Module):
    """The transformer over patches. No final norm."""

    config: BLTConfig

    def setup(self):
        c = self.config
        if c.patch_vectors * c.encoder.dim != c.global_transformer.dim:
            self.project = project(c.global_transformer.dim)
        self.trunk = Transformer(c.global_transformer)

    def __call__(
        self,
        patches: Float[Array, "B P kD"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B P G"], Caches | None]:
        """Latents of patches. Under a window the caches are rings, which are read whole."""
        block = BLOCK if caches is not None and span.window is None else None
        if patches.shape[-1] != self.config.global_transformer.dim:
            patches = self.project(patches)
        return self.trunk(patches, caches, span=span, block=block)


class Context(NamedTuple):
    """What one decoder layer's cross-attention reads of a patch, k vectors each."""

    keys: Float[Array, "B P k K d"]
    values: Float[Array, "B P k K d"]


class Joint(NamedTuple):
    """Logits of texts and of blocks of their bytes."""

    clean: Float[Array, "B S V"]  # of the byte after each clean byte
    cells: Float[Array, "B M C V"]  # of the cells' own bytes
    exits: Float[Array, "B S V"] | None  # as `clean`, from an earlier layer


class Decoder(nn.Module):
    """The local decoder. Before a layer's block, each byte reads the latent of one patch."""

    config: BLTConfig

    def setup(self):
        c = self.config
        if c.decoder_input == "embedding":
            self.embed = embedding(c.vocab_size, c.decoder.dim)
        self.split = project(c.patch_vectors * c.decoder.dim)
        self.cross = [CrossAttention(c.decoder) for _ in range(c.decoder_cross_layers)]
        self.trunk = Transformer(c.decoder)
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
          depth: run the first so many layers only, and the head on what they give: an early exit.
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
        written = []
        for index, layer in enumerate(self.trunk.layers[:depth]):
            if index < first:
                continue
            if index < len(self.cross):
                x = self.read_latent(index, x, contexts[index], patch)
            x, cache = layer(x, caches and caches[index], positions=positions, attend=attend)
            written.append(cache)
        return x, caches and tuple(written)

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


class Encoded(NamedTuple):
    """What the parallel pass knows of whole texts before the decoder."""

    entropies: Float[Array, "B S"]  # nats; zeros where the patching needs none
    closes: Bool[Array, "B S"]  # byte t is the last of its patch
    states: Float[Array, "B S D"]  # of the encoder
    latents: Float[Array, "B P G"]  # global outputs of the closed patches, in order
    patch: Int[Array, "B S"]  # the patch whose latent each byte's decoder row reads
    span: Span  # what each byte sees in the decoder


class Forward(NamedTuple):
    """The parallel pass over whole texts."""

    logits: Float[Array, "B S V"]
    entropies: Float[Array, "B S"]
    closes: Bool[Array, "B S"]
    latents: Float[Array, "B P G"]


class BLT(nn.Module):
    """The whole model. `__call__` is the parallel pass; decoding composes the parts.

    The patcher's parameters are float32 and run at the highest precision whatever the rest is in:
    the same text would otherwise be cut differently at another shape.
    """

    config: BLTConfig

    def setup(self):
        c = self.config
        if c.patcher is not None:
            self.patcher = ByteLM(c.patcher, jax.lax.Precision.HIGHEST)
        self.encoder = Encoder(c)
        self.global_transformer = Global(c)
        self.decoder = Decoder(c)

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
        """Everything before the decoder.

        Args:
          ids: right-padded texts.
          max_patches: closed patches the pass has room for, by default one a byte. Patches beyond
            it are dropped, so pass less only where a text is known to have less.
        """
        c = self.config
        batch, length = ids.shape
        positions = jnp.broadcast_to(jnp.arange(length), ids.shape)
        entropies = self.entropies(ids)
        open_patch = patching.open_patches(
            patching.no_patch(batch), entropies, positions, config=c.patching
        )
        closes = patching.closing(open_patch, positions)
        last_eos = last_eos_before(ids, mask=c.mask_documents)

        def local_span(window):
            return kv_cache.causal_span(positions, window=window, first=last_eos[:, :-1] + 1)

        history = jnp.pad(ids, ((0, 0), (c.hashing.history, 0)), constant_values=vocab.BOE)
        states, _ = self.encoder(history, span=local_span(c.encoder.window))
        pool = running_maximum(
            jnp.zeros_like(states[:, 0]), states, open_patch.start[:, :-1] == positions
        )
        patches = closed_patches(closes, open_patch, last_eos, max_patches or length)
        keys, values = self.encoder.cross.keys_values(states)
        pooled = self.encoder.patches(
            at_slot(pool, patches.last + 1),
            KVCache(keys.swapaxes(1, 2), values.swapaxes(1, 2)),
            first=patches.first,
            last=patches.last,
            newest=positions[:, -1],
            block=None,
            longest=c.patching.max_patch_length,
        )
        index = jnp.broadcast_to(jnp.arange(patches.last.shape[1]), patches.last.shape)
        span = kv_cache.causal_span(
            index, window=c.global_transformer.window, first=document_start(patches.has_eos)
        )
        latents, _ = self.global_transformer(pooled, span=span)
        patch = jnp.cumsum(closes, axis=1) - 1
        return Encoded(entropies, closes, states, latents, patch, local_span(c.decoder.window))

    def entropies(self, ids: Int[Array, "B S"]) -> Float[Array, "B S"]:
        """Next-byte entropies of whole texts, nats."""
        if self.config.patching.mode != "entropy":
            return jnp.zeros(ids.shape, jnp.float32)
        return entropy.next_byte_entropy(self.patcher(ids))


class ClosedPatches(NamedTuple):
    """The patches that close within a window, in order. Where there is none, first > last."""

    first: Int[Array, "B P"]  # window slots or positions of the first byte
    last: Int[Array, "B P"]
    has_eos: Bool[Array, "B P"]


def closed_patches(
    closes: Bool[Array, "B S"],
    open_patch: OpenPatch,
    last_eos: Int[Array, "B S+1"],
    capacity: int,
) -> ClosedPatches:
    """Gathers the first `capacity` patches that close in texts whose first byte has position 0."""
    length = closes.shape[1]
    last = nth_true(closes, jnp.arange(capacity))
    there = last < length
    slot = jnp.minimum(last, length - 1)
    first = jnp.take_along_axis(open_patch.start, slot, axis=1)
    eos = jnp.take_along_axis(last_eos, slot + 1, axis=1)
    return ClosedPatches(
        first=jnp.where(there, first, 1),
        last=jnp.where(there, last, 0),
        has_eos=there & (eos >= first),
    )


def nth_true(flags: Bool[Array, "B S"], n: Int[Array, "*N"]) -> Int[Array, "B *N"]:
    """Index of the n-th (from 0) True of each row; S where there are not that many."""
    count = jnp.cumsum(flags, axis=1)
    return jax.vmap(lambda row: jnp.searchsorted(row, n + 1))(count)


def document_start(has_eos: Bool[Array, "B P"]) -> Int[Array, "B P"]:
    """First patch of each patch's document: an EOS patch is the last of its own."""
    index = jnp.where(has_eos, jnp.arange(has_eos.shape[1]) + 1, 0)
    before = jnp.pad(index[:, :-1], ((0, 0), (1, 0)))
    return jax.lax.cummax(before, axis=1)


def running_maximum(
    state: Float[Array, "B D"], x: Float[Array, "B W D"], starts: Bool[Array, "B W"]
) -> Float[Array, "B W+1 D"]:
    """Maximum over the patch so far, before and after each byte of a window.

    Args:
      state: the maximum before the window.
      x: the window's encoder states.
      starts: whether a byte is the first of its patch.
    """

    def combine(left, right):
        (left_starts, left_top), (right_starts, right_top) = left, right
        top = jnp.where(right_starts, right_top, jnp.maximum(left_top, right_top))
        return left_starts | right_starts, top

    flags = jnp.pad(starts, ((0, 0), (1, 0)))[..., None]
    values = jnp.concatenate([state[:, None], x], axis=1)
    return jax.lax.associative_scan(combine, (flags, values), axis=1)[1]


def at_slot(x: Float[Array, "B S D"], slot: Int[Array, "B P"]) -> Float[Array, "B P D"]:
    """x[b, slot[b, p]]."""
    return jnp.take_along_axis(x, slot[..., None], axis=1)
