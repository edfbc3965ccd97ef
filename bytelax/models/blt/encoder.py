"""The local encoder, which turns bytes into hidden states and pools those of a patch.

Source: BLT (arXiv 2412.09871, section 3.2).
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels.verify_attention import verify_attention
from jaxtyping import Array, Float, Int

from bytelax.models import fused, hashing
from bytelax.models.configs import BLTConfig
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
        self.cross = fused.cross_attention(c.encoder, execution)

    def __call__(
        self, ids: Int[Array, "B T"], caches: Caches | None = None, *, span: Span
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """Encodes the W new bytes of a window.

        Args:
          ids: the latest `hashing.history` ids before the window, then the W new ids.
          caches: self-attention caches, or None for whole texts.
          span: positions of the window and what each of them attends to.

        Returns:
          Encoder states of the window, and the caches with the window written to them.
        """
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
        """Pools the bytes of each patch into one vector by cross-attention.

        The k queries of a patch come from its max-pooled encoder states and attend to the bytes
        `first..last`; the k outputs are concatenated.

        Args:
          pooled: maximum of the encoder states over each patch.
          bytes_seen: cross-attention keys and values of every byte, by position.
          first: position of the first byte of each patch; greater than `last` if there is no patch.
          last: position of the last byte of each patch.
          newest: position of the latest byte in `bytes_seen`.
          block: as in `verify_attention`. The pass is differentiable only if this is None.
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
                block=block,
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
