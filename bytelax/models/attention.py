"""Self-attention within a stack, and the cross-attention between bytes and patches."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm
from bytelax.models.transformer_config import TransformerConfig

# (queries, keys, values, cache) -> (attended, cache): what a window of positions sees. A cache is
# what the function makes of it: a `KVCache` for those of `kv_cache`.
Cache = tuple | None
Attend = Callable[..., tuple[Float[Array, "B W H D"], Cache]]


def rotary(
    x: Float[Array, "B W H D"], positions: Int[Array, "B W"], *, theta: float
) -> Float[Array, "B W H D"]:
    """Rotates the pairs (0, 1), (2, 3), ... of each head by position-dependent phases.

    Source: RoPE (arXiv 2104.09864). The phases are float32 whatever the dtype of `x`: a phase in
    another precision moves entropies across the patching threshold.
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
    """Grouped-query attention; `attend` decides which positions each query sees."""

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
        c = self.config
        group = c.heads // c.kv_heads
        precision = self.execution.precision
        # One matrix for queries, keys and values, grouped by key head so that it splits by head.
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
    """Attention between bytes and patches: no positions, and the input added twice.

    `keys_values` and `queries` are apart because the keys are computed once and cached. The output
    is `x + attention(norm(x))`; BLT as released adds `x` once more, which is part of `residual`.
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
        return self.query(self.query_norm(x))

    def keys_values(
        self, x: Float[Array, "*B D"]
    ) -> tuple[Float[Array, "*B K d"], Float[Array, "*B K d"]]:
        pair = self.key_value(self.key_norm(x))
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def residual(
        self, x: Float[Array, "B W D"], attended: Float[Array, "B W H d"]
    ) -> Float[Array, "B W D"]:
        return x + (x + self.execution.psum(self.out(attended)))
