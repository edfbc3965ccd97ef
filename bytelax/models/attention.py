"""Self-attention of a stack, and cross-attention between bytes and patches."""

from collections.abc import Callable

import flax.linen as nn
from bytelax_kernels.append_attention import Projections, frequencies
from jaxtyping import Array, Float, Int

from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, Normed, RMSNorm

# (projections, cache) -> (attended, cache). The function decides which positions each query of the
# window attends to and what a cache is: a `KVCache` for `kv_cache.attend`.
Cache = tuple | None
Attend = Callable[..., tuple[Float[Array, "B W H D"], Cache]]


class SelfAttention(nn.Module):
    """Grouped-query self-attention; `attend` decides which positions each query attends to."""

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self,
        x: Normed,
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
        onto: Float[Array, "B W D"] | None = None,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Attends from each position of a window.

        Args:
          x: hidden states of the window, and their norm.
          cache: cache that `attend` reads and writes.
          positions: positions for the rotary phases.
          attend: computes the attention; see `Attend`.
          onto: the residual stream, if its update is to be added to it.

        Returns:
          The update of the residual stream, added to `onto` if that is given, and the cache that
          `attend` returns.
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
        frequency = frequencies(c.head_dim, c.rope_theta)
        attended, cache = attend(Projections(qkv, positions, frequency), cache)
        out = Dense((c.dim,), ("head", "head_dim", "embed"), precision, name="out")
        return self.execution.add(out, attended, onto), cache


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
        return self.query(self.query_norm.before(x))

    def keys_values(
        self, x: Float[Array, "*B D"]
    ) -> tuple[Float[Array, "*B K d"], Float[Array, "*B K d"]]:
        """Normalizes and projects `x` to keys and values."""
        pair = self.key_value(self.key_norm.before(x))
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def residual(
        self, x: Float[Array, "B W D"], attended: Float[Array, "B W H d"]
    ) -> Float[Array, "B W D"]:
        """Projects the attended values and adds the input twice: `2 x + out(attended)`."""
        return self.execution.add(self.out, attended, x, times=2)
