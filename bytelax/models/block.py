"""The transformer block, and the cross-attention between bytes and patches."""

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels import cross_attention, dispatch
from bytelax_kernels.append_attention import Projections
from bytelax_kernels.append_attention import frequencies as unscaled
from jaxtyping import Array, Float, Int

from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm, parameter

# (projections, cache) -> (attended, cache). The function decides which positions each query of the
# window attends to and what a cache is: a `KVCache` for `kv_cache.attend`.
Cache = tuple | None
Attend = Callable[..., tuple[Float[Array, "B W H D"], Cache]]
_ZEROS = nn.initializers.zeros


class SelfAttention(nn.Module):
    """Grouped-query self-attention; `attend` decides which positions each query attends to."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, group = self.config, self.config.heads // self.config.kv_heads
        # One matrix for queries, keys and values, grouped by key head so that it shards by head.
        features, axes = (c.kv_heads, group + 2, c.head_dim), ("kv_head", None, "head_dim")
        self.qkv = Dense(features, ("embed", *axes), self.execution)
        self.out = Dense((c.dim,), ("head", "head_dim", "embed"), self.execution)
        if c.biases != "none":
            self.qkv_bias = parameter(self, "qkv_bias", _ZEROS, features, axes)
        if c.biases == "all":
            self.out_bias = parameter(self, "out_bias", _ZEROS, (c.dim,), ("norm",))
        if c.qk_norm:
            self.query_norm, self.key_norm = RMSNorm(c.norm_eps), RMSNorm(c.norm_eps)

    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Computes the attention of `x`, and the cache that `attend` returns."""
        attended, cache = attend(self.projections(self.qkv(x), positions), cache)
        return self.projected(attended), cache

    def projected(self, attended: Float[Array, "B W H d"]) -> Float[Array, "B W D"]:
        """Projects the attended values."""
        out = self.execution.psum(self.out(attended))
        return out + self.out_bias if self.config.biases == "all" else out

    def projections(
        self, qkv: Float[Array, "B W K _ d"], positions: Int[Array, "B W"]
    ) -> Projections:
        """Queries, keys and values, with the positions of their rotary phases."""
        c = self.config
        if c.biases != "none":
            qkv = qkv + self.qkv_bias
        if c.qk_norm:
            queries, keys, values = jnp.split(qkv, (qkv.shape[-2] - 2, qkv.shape[-2] - 1), axis=-2)
            queries, keys = self.query_norm(queries), self.key_norm(keys)
            qkv = jnp.concatenate([queries, keys, values], axis=-2)
        return Projections(qkv, positions, frequencies(c))


def frequencies(config: TransformerConfig) -> Float[Array, " {config.head_dim//2}"]:
    """The frequency of each pair of a head, in radians per position, scaled for long texts.

    Source: `transformers.modeling_rope_utils`, which both scalings are compared with.
    """
    if dispatch.platform() != "gpu":
        return _frequencies(config)
    with jax.ensure_compile_time_eval():  # or XLA computes them in every round of a loop
        return _frequencies(config)


def _frequencies(config):
    plain, scaling = unscaled(config.head_dim, config.rope_theta), config.rope_scaling
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_positions * plain / (2 * math.pi)
    kept = jnp.clip((turns - low) / (high - low), 0, 1)
    return plain / scaling.factor * (1 - kept) + plain * kept


class SwiGLU(nn.Module):
    """The gated MLP `down(silu(gate(x)) * up(x))` (arXiv 2002.05202), gate and up in one matrix."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.gate_up = Dense((2, c.ffn_dim), ("embed", None, "hidden"), execution)
        self.down = Dense((c.dim,), ("hidden", "embed"), execution)

    def __call__(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        """Computes the MLP of `x`."""
        pair = self.gate_up(x)
        return self.execution.psum(self.down(nn.silu(pair[..., 0, :]) * pair[..., 1, :]))


class Block(nn.Module):
    """A pre-norm transformer block: `x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.attention_norm, self.attention = RMSNorm(c.norm_eps), SelfAttention(c, execution)
        self.mlp_norm, self.mlp = RMSNorm(c.norm_eps), SwiGLU(c, execution)

    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Runs the block over a window.

        Args:
          x: hidden states before the block.
          cache: cache of its attention.
          positions: positions for the rotary phases.
          attend: decides which positions each query attends to.

        Returns:
          Hidden states after the block, and its cache with the window written to it.
        """
        x, cache = self.attends(x, cache, positions=positions, attend=attend)
        return self.execution.by_rows(self.transforms(x)), cache

    def attends(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """The first half: `x + attention(norm(x))`, and the cache."""
        normed = self.attention_norm(x)
        attended, cache = self.attention(normed, cache, positions=positions, attend=attend)
        return x + attended, cache

    def transforms(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        """The second half: `x + mlp(norm(x))`."""
        return x + self.mlp(self.mlp_norm(x))

    def projections(self, x: Float[Array, "B W D"], positions: Int[Array, "B W"]) -> Projections:
        """Queries, keys and values of the attention."""
        qkv = self.attention.qkv(self.attention_norm(x))
        return self.attention.projections(qkv, positions)


class RematBlock(Block):
    """A `Block` whose states are computed again in the backward pass; only its input is stored."""

    def __call__(self, x, cache, *, positions, attend):
        def run(block, x, cache):
            return Block.__call__(block, x, cache, positions=positions, attend=attend)

        return nn.remat(run)(self, x, cache)


class CrossAttention(nn.Module):
    """Cross-attention between bytes and patches, without positions (arXiv 2412.09871, section 3).

    `queries` and `keys_values` are separate methods because keys and values are computed once and
    cached. The released BLT adds the input a second time after the usual residual connection;
    `residual` does both.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.query_norm, self.key_norm = RMSNorm(c.norm_eps), RMSNorm(c.norm_eps)
        self.query = Dense((c.heads, c.head_dim), ("embed", "head", "head_dim"), execution)
        pair, axes = (2, c.kv_heads, c.head_dim), ("embed", None, "kv_head", "head_dim")
        self.key_value = Dense(pair, axes, execution)
        self.out = Dense((c.dim,), ("head", "head_dim", "embed"), execution)

    def queries(self, x: Float[Array, "B W D"]) -> Float[Array, "B W H d"]:
        """Normalizes and projects `x` to queries."""
        return self.query(self.query_norm(x))

    def keys_values(
        self, x: Float[Array, "*B D"]
    ) -> tuple[Float[Array, "*B K d"], Float[Array, "*B K d"]]:
        """Normalizes and projects `x` to keys and values."""
        pair = self.key_value(self.key_norm(x))
        return pair[..., 0, :, :], pair[..., 1, :, :]

    def read_one(
        self,
        queries: Float[Array, "B W H d"],
        keys: Float[Array, "B P k K d"],
        values: Float[Array, "B P k K d"],
        patch: Int[Array, "B W"],
    ) -> Float[Array, "B W H d"]:
        """Attends from each byte to the k vectors of one patch.

        Args:
          queries: of the bytes.
          keys, values: rings of those of the patches.
          patch: index of the patch that each byte reads.
        """
        return cross_attention.read_one(queries, keys, values, patch % keys.shape[1])

    def residual(
        self, x: Float[Array, "B W D"], attended: Float[Array, "B W H d"]
    ) -> Float[Array, "B W D"]:
        """Projects the attended values and adds the input twice: `2 x + out(attended)`."""
        return x + (x + self.execution.psum(self.out(attended)))
