"""The local encoder, which pools bytes into patches, and the global transformer over patches.

Source: BLT (arXiv 2412.09871, sections 3.1 and 3.2).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import kv_cache
from bytelax.models.block import CrossAttention
from bytelax.models.configs import PRIMES, BLTConfig, HashConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, KVCache, Span
from bytelax.models.layers import Embedding, project
from bytelax.models.transformer import Transformer


class Encoder(nn.Module):
    """Byte and hash n-gram embeddings, a stack over bytes, and pooling of bytes into patches."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.embed = Embedding(c.vocab_size, c.encoder.dim, execution=execution)
        self.hash_embed = Embedding(
            c.hashing.rows, c.encoder.dim, ("hash_row", "hash_width"), execution
        )
        self.trunk = Transformer(c.encoder, execution)
        self.split = project(c.patch_vectors * c.encoder.dim, execution)
        self.cross = execution.layer(CrossAttention)(c.encoder, execution)

    def __call__(
        self, ids: Int[Array, "B T"], caches: Caches | None = None, *, span: Span
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Encodes the W new bytes of a window.

        Args:
          ids: the latest `history` ids before the window, then the W new ids.
          caches: self-attention caches, or None for whole texts.
          span: positions of the window and what each of them attends to.

        Returns:
          Encoder states of the window, and the caches with the window written to them.
        """
        return self.trunk(self.looked_up(ids), caches, span=span)

    def looked_up(self, ids: Int[Array, "B T"]) -> Float[Array, "B W D"]:
        """Looks up the input of the stack; `ids` are those of `__call__`."""
        history = self.config.hashing.history
        rows = hash_ids(ids, config=self.config.hashing)
        hashes = self.execution.all_gather(self.hash_embed(rows))
        x = self.embed(ids[:, history:])
        for index in range(hashes.shape[2]):
            x = x + hashes[:, :, index]
        return x

    def patches(
        self,
        pooled: Float[Array, "B P D"],
        bytes_seen: KVCache,
        *,
        first: Int[Array, "B P"],
        last: Int[Array, "B P"],
        newest: Int[Array, " B"],
        block_kv: int | None,
        longest: int | None = None,
    ) -> Float[Array, "B P kD"]:
        """Pools the bytes of each patch into one vector by cross-attention.

        The k queries of a patch come from its max-pooled encoder states and attend to the bytes
        `first..last`; the k outputs are concatenated.

        Args:
          pooled: maximum of the encoder states over each patch.
          bytes_seen: cross-attention keys and values of every byte, by position.
          first: position of the first byte of each patch; greater than `last` if there is no patch.
          last: position of the last byte of each patch.
          newest: position of the latest byte in `bytes_seen`.
          block_kv: as in `verify_attention`. The pass is differentiable only if this is None.
          longest: upper bound on the number of bytes in a patch. Each patch is then scored against
            only that many bytes, which requires that `bytes_seen` does not wrap around. None scores
            it against all bytes.
        """
        k = self.config.patch_vectors
        batch, count, dim = pooled.shape
        x = self.split(pooled).reshape(batch, count * k, dim)
        queries = self.cross.queries(x)
        if longest is not None and longest < bytes_seen.slots:
            attended = _attend_to_own_bytes(queries, bytes_seen, first, last, longest)
        else:
            attended = verify_attention(
                queries,
                *bytes_seen,
                first=jnp.repeat(first, k, axis=1),
                last=jnp.repeat(last, k, axis=1),
                newest=newest,
                block_kv=block_kv,
            )
        return self.cross.residual(x, attended).reshape(batch, count, k * dim)


def _attend_to_own_bytes(queries, bytes_seen, first, last, longest):
    """Attends from each patch to a slice of `longest` bytes, with patches as rows of a batch."""
    batch, count = first.shape
    begin = jnp.clip(first, 0, bytes_seen.slots - longest)

    def own(cache):
        def slots(row, start):
            return jax.lax.dynamic_slice_in_dim(row, start, longest, axis=row.ndim - 2)

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
    """Repeats [B, P] to [B P, k], the layout of the queries with patches as rows."""
    return jnp.repeat(at.reshape(-1, 1), queries.shape[1] // at.shape[1], axis=1)


_LIMBS = 4


def hash_ids(ids: Int[Array, "B T"], *, config: HashConfig) -> Int[Array, "B W N"]:
    """Rows of the fused hash table for each new id, one per hash.

    Source: BLT (section 3.2.1) as released. For function f and group size g,

        h_i = sum_{j < g} ids[i - g + 1 + j] * prime_f ** j, in int64 that wraps
        row = h_i mod vocab, never negative

    Ids are hashed rather than byte values, special ids included, and id 0 pads the text on the
    left. JAX without x64 has no 64-bit integers, so the sum is computed in four 16-bit limbs held
    in uint32. This is exact for groups of up to 128 ids.

    Args:
      ids: `config.history` earlier ids, with zeros before the start of the text, followed by the
        W = T - history new ids.
      config: n-gram lengths, number of functions and table size.

    Returns:
      i32[B, W, N], where N = functions * len(groups). The last axis is function-major, and the
      offset of each hash's table is already added.
    """
    ids = ids.astype(jnp.uint32)
    rows: list[Array] = []
    for function in range(config.functions):
        for group in config.groups:
            offset = len(rows) * config.vocab
            remainder = _remainder(_polynomial(ids, PRIMES[function], group), config.vocab)
            rows.append(remainder[:, config.history - group + 1 :] + offset)
    if not rows:
        return jnp.zeros((ids.shape[0], ids.shape[1] - config.history, 0), jnp.int32)
    return jnp.stack(rows, axis=-1)


def _polynomial(ids, prime, group):
    """The 64-bit hash of every window of `group` ids, as four 16-bit limbs, lowest first."""
    windows = ids.shape[1] - group + 1
    limbs = [jnp.uint32(0)] * _LIMBS
    for j in range(group):
        power = pow(prime, j, 1 << 64)
        window = ids[:, j : j + windows]
        for limb in range(_LIMBS):
            limbs[limb] += window * np.uint32(power >> (16 * limb) & 0xFFFF)
    carry = jnp.uint32(0)
    for limb in range(_LIMBS):
        total = limbs[limb] + carry
        limbs[limb], carry = total & 0xFFFF, total >> 16
    return limbs


def _remainder(limbs, vocab):
    """Floor-mod of a signed 64-bit number by `vocab`.

    The number is reduced as an unsigned one, and 2**64 is subtracted if its sign bit is set.
    """
    remainder = jnp.uint32(0)
    for limb in reversed(limbs):
        for byte in (limb >> 8, limb & 0xFF):
            remainder = (remainder * 256 + byte) % vocab
    negative = limbs[-1] >> 15
    return ((remainder + negative * np.uint32(-(1 << 64) % vocab)) % vocab).astype(jnp.int32)


class Global(nn.Module):
    """The global latent transformer over patches, without a final norm."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c = self.config
        if c.patch_vectors * c.encoder.dim != c.global_transformer.dim:
            self.project = project(c.global_transformer.dim, self.execution)
        self.trunk = Transformer(c.global_transformer, self.execution)

    def __call__(
        self,
        patches: Float[Array, "B P kD"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B P G"], Caches | None]:
        """Computes the latents of patches.

        Args:
          patches: pooled vectors from `Encoder.patches`.
          caches: self-attention caches, or None for whole texts. Without an attention window they
            grow with the text and are read in blocks; with one they are rings and are read whole.
          span: indices of the patches and what each of them attends to.

        Returns:
          One latent per patch, and the caches with the patches written to them.
        """
        block_kv = kv_cache.BLOCK_KV if caches is not None and span.window is None else None
        if patches.shape[-1] != self.config.global_transformer.dim:
            patches = self.project(patches)
        return self.trunk(patches, caches, span=span, block_kv=block_kv)
