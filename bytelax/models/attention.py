"""Self-attention of a stack, and cross-attention between bytes and patches."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm
from bytelax.models.transformer_config import TransformerConfig

# (queries, keys, values, cache) -> (attended, cache). The function decides which positions each
# query of the window attends to and what a cache is: a `KVCache` for `kv_cache.attend`.
Cache = tuple | None
Attend = Callable[..., tuple[Float[Array, "B W H D"], Cache]]


def rotary(
    x: Float[Array, "B W H D"], positions: Int[Array, "B W"], *, theta: float
) -> Float[Array, "B W H D"]:
    """Applies rotary position embeddings to the interleaved pairs (0, 1), (2, 3), ... of each head.

    Source: RoPE (arXiv 2104.09864). Phases are computed in float32 for any dtype of `x`, because a
    lower precision would move entropies across the patching threshold.

    Args:
      x: queries or keys.
      positions: position of each of the W entries.
      theta: base of the frequencies.
    """
    dim = x.shape[-1]
    frequency = 1.0 / theta ** (jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)
    phase = positions[..., None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(phase), jnp.sin(phase)
    pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], dim // 2, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    rotated = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return rotated.reshape(x.shape).astype(x.dtype)


class SelfAttention(nn.Module):
    """Grouped-query self-attention; `attend` decides which positions each query attends to."""

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Attends from each position of a window.

        Args:
          x: normalized hidden states of the window.
          cache: cache that `attend` reads and writes.
          positions: positions for the rotary phases.
          attend: computes the attention; see `Attend`.

        Returns:
          The update of the residual stream, and the cache that `attend` returns.
        """
        c = self.config
        group = c.heads // c.kv_heads
        precision = self.execution.precision
        # One matrix for queries, keys and values, grouped by key head so that it shards by head.
        qkv = Dense(
            (c.kv_heads, group + 2, c.head_dim),
            ("embed", "kv_head", None, "head_dim"),
            precision,
            name="qkv",
        )(x)
        queries = qkv[..., :group, :].reshape(*x.shape[:2], c.heads, c.head_dim)
        keys, values = qkv[..., group, :], qkv[..., group + 1, :]
        rotate = functools.partial(rotary, positions=positions, theta=c.rope_theta)
        attended, cache = attend(rotate(queries), rotate(keys), values, cache)
        out = Dense((c.dim,), ("head", "head_dim", "embed"), precision, name="out")(attended)
        return self.execution.psum(out), cache


class CrossAttention(nn.Module):
    """Cross-attention between bytes and patches, without positions (arXiv 2412.09871, section 3).

    `queries` and `keys_values` are separate methods because keys and values are computed once and
    cached. The released BLT adds the input a second time after the usual residual connection;
    `residual` does both.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c = self.config
        self.query_norm = RMSNorm(c.norm_eps)
        self.key_norm = RMSNorm(c.norm_eps)
        self.query = Dense((c.heads, c.head_dim), ("embed", "head", "head_dim"))
        self.key_value = Dense((2, c.kv_heads, c.head_dim), ("embed", None, "kv_head", "head_dim"))
        self.out = Dense((c.dim,), ("head", "head_dim", "embed"))

    def queries(self, x: Float[Array, "B W D"]) -> Float[Array, "B W H d"]:
        """Normalizes and projects `x` to queries."""
        return self.query(self.query_norm(x))

    def keys_values(
        self, x: Float[Array, "*B D"]
    ) -> tuple[Float[Array, "*B K d"], Float[Array, "*B K d"]]:
        """Normalizes and projects `x` to keys and values."""
        pair = self.key_value(self.key_norm(x))
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def residual(
        self, x: Float[Array, "B W D"], attended: Float[Array, "B W H d"]
    ) -> Float[Array, "B W D"]:
        """Projects the attended values and adds the input twice: `2 x + out(attended)`."""
        return x + (x + self.execution.psum(self.out(attended)))
