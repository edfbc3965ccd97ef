"""The local encoder: bytes and their hash n-grams to states, and the states of a patch to a vector.

Source: BLT (arXiv 2412.09871, section 3.2).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import hashing
from bytelax.models.attention import CrossAttention
from bytelax.models.blt.config import BLTConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, KVCache, Span
from bytelax.models.layers import Embedding, project
from bytelax.models.transformer import Transformer


class Encoder(nn.Module):
    """Byte and hash embeddings, the local encoder, and its pooling of bytes into patches."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.embed = Embedding(c.vocab_size, c.encoder.dim, execution=execution)
        self.hash_embed = Embedding(
            c.hashing.rows, c.encoder.dim, ("hash_row", "hash_width"), execution
        )
        self.trunk = Transformer(c.encoder, execution)
        self.split = project(c.patch_vectors * c.encoder.dim)
        self.cross = CrossAttention(c.encoder, execution)

    def __call__(
        self, ids: Int[Array, "B T"], caches: Caches | None = None, *, span: Span
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Encoder states of the W new bytes behind `hashing.history` earlier ids."""
        history = self.config.hashing.history
        rows = hashing.hash_ids(ids, config=self.config.hashing)
        hashes = self.execution.all_gather(self.hash_embed(rows))
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
        block: int | None,
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
          longest: the largest number of bytes in a patch, where `bytes_seen` never wraps. Each
            patch is then scored against that many bytes only. None: against all of them.
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
