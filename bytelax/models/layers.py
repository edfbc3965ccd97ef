"""The Llama-style block all of bytelax's networks are built of.

Pre-norm, SwiGLU, no biases, grouped-query attention, interleaved rotary positions. The compute
dtype is the dtype of the parameters: cast them, and the module follows.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models import kv_cache
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.lookup import rows_of

# (queries, keys, values, cache) -> (attended, cache): what a window of positions sees. A cache is
# what the function makes of it: a `KVCache` for those of `kv_cache`.
Cache = tuple | None
Attend = Callable[..., tuple[Float[Array, "B W H D"], Cache]]

LONGEST = 1 << 24  # float32, in which rotary phases are, has no odd positions beyond
# Outputs as large as inputs, at any width. A fixed 0.02 is several times too little at widths of
# tens to hundreds, and the latents of a small BLT, which pass through many matrices, then die.
_KERNEL = nn.initializers.lecun_normal()
_SMALL = nn.initializers.normal(0.02)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """A stack of blocks.

    Attributes:
      dim: width of the residual stream.
      layers: number of blocks.
      heads: query heads.
      kv_heads: key and value heads, a divisor of `heads`.
      head_dim: width of a head, even.
      ffn_dim: hidden width of the SwiGLU.
      window: bytes a query sees, itself included; None sees all.
      rope_theta: base of the rotary frequencies.
      norm_eps: added to the mean square.
    """

    dim: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn_dim: int
    window: int | None = None
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5

    def __post_init__(self):
        for field in ("dim", "layers", "heads", "kv_heads", "head_dim", "ffn_dim"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} must be at least 1, got {getattr(self, field)}")
        for field in ("rope_theta", "norm_eps"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field} must be positive, got {getattr(self, field)}")
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads do not divide among {self.kv_heads} kv_heads")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotary positions, got {self.head_dim}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"an attention window must be at least 1, got {self.window}")


def check_max_bytes(max_bytes: int) -> None:
    """Raises ValueError for a context that no model has."""
    if not 2 <= max_bytes <= LONGEST:
        raise ValueError(f"max_bytes must lie in 2..{LONGEST}, got {max_bytes}")


@dataclasses.dataclass(frozen=True)
class Part:
    """Which blocks of a stack run.

    Attributes:
      first: the first of them; the input is then what the blocks before it gave.
      last: the first that does not run; None runs to the end.
      no_attention: blocks whose attention is skipped.
      no_mlp: blocks whose SwiGLU is skipped.
    """

    first: int = 0
    last: int | None = None
    no_attention: tuple[int, ...] = ()
    no_mlp: tuple[int, ...] = ()


ALL = Part()


class RMSNorm(nn.Module):
    """Root-mean-square norm with float32 statistics."""

    eps: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        wide = x.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + self.eps)
        return wide.astype(x.dtype) * scale


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
    """Grouped-query attention; what sees what is the business of `attend`."""

    config: TransformerConfig
    precision: jax.lax.Precision | None = None

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
        # One matrix for queries, keys and values, grouped by key head so that it splits by head.
        qkv = _dense((c.kv_heads, group + 2, c.head_dim), "qkv", precision=self.precision)(x)
        queries = qkv[..., :group, :].reshape(*x.shape[:2], c.heads, c.head_dim)
        keys, values = qkv[..., group, :], qkv[..., group + 1, :]
        rotate = functools.partial(rotary, positions=positions, theta=c.rope_theta)
        attended, cache = attend(rotate(queries), rotate(keys), values, cache)
        return _dense(c.dim, "out", axis=(-2, -1), precision=self.precision)(attended), cache


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)), gate and up in one matrix."""

    config: TransformerConfig
    precision: jax.lax.Precision | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        gate_up = _dense((2, self.config.ffn_dim), "gate_up", precision=self.precision)(x)
        hidden = nn.silu(gate_up[..., 0, :]) * gate_up[..., 1, :]
        return _dense(self.config.dim, "down", precision=self.precision)(hidden)


class Block(nn.Module):
    """x + attention(norm(x)), then + mlp(norm(.))."""

    config: TransformerConfig
    precision: jax.lax.Precision | None = None

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
        attends: bool = True,
        transforms: bool = True,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Either half may be left out: then x passes, and without attention the cache as well."""
        eps = self.config.norm_eps
        if attends:
            attention = SelfAttention(self.config, self.precision, name="attention")
            attended, cache = attention(
                RMSNorm(eps, name="attention_norm")(x), cache, positions=positions, attend=attend
            )
            x = x + attended
        if transforms:
            mlp = SwiGLU(self.config, self.precision, name="mlp")
            x = x + mlp(RMSNorm(eps, name="mlp_norm")(x))
        return x, cache


class Transformer(nn.Module):
    """A stack of blocks without embedding, final norm or head."""

    config: TransformerConfig
    precision: jax.lax.Precision | None = None

    def setup(self):
        # Unrolled: on CPU a scan over layers would copy the caches.
        self.layers = [Block(self.config, self.precision) for _ in range(self.config.layers)]

    def __call__(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        part: Part = ALL,
    ) -> tuple[Float[Array, "B W D"], Caches | None]:
        """The hidden states behind the stack, and the caches with the window in them.

        Caches of blocks that do not run, or not their attention, come back as they are.
        """
        hidden, caches = self.states(x, caches, span=span, block=block, part=part)
        return hidden[-1], caches

    def states(
        self,
        x: Float[Array, "B W D"],
        caches: Caches | None = None,
        *,
        span: Span,
        block: int | None = None,
        part: Part = ALL,
    ) -> tuple[tuple[Float[Array, "B W D"], ...], Caches | None]:
        """As `__call__`, but with the hidden states before the first block and behind each."""
        attend = functools.partial(kv_cache.attend, span=span, block=block)
        positions = span.positions if span.turns is None else span.turns
        last = len(self.layers) if part.last is None else part.last
        hidden, written = [x], list(caches or [None] * len(self.layers))
        for index in range(part.first, last):
            x, written[index] = self.layers[index](
                x,
                written[index],
                positions=positions,
                attend=attend,
                attends=index not in part.no_attention,
                transforms=index not in part.no_mlp,
            )
            hidden.append(x)
        return tuple(hidden), caches and tuple(written)


class CrossAttention(nn.Module):
    """Attention between bytes and patches: no positions, and the input added twice.

    `keys_values` and `queries` are apart because the keys are computed once and cached. The output
    is `x + attention(norm(x))`; BLT as released adds `x` once more, which is part of `residual`.
    """

    config: TransformerConfig

    def setup(self):
        c = self.config
        self.query_norm = RMSNorm(c.norm_eps)
        self.key_norm = RMSNorm(c.norm_eps)
        self.query = _dense((c.heads, c.head_dim))
        self.key_value = _dense((2, c.kv_heads, c.head_dim))
        self.out = _dense(c.dim, axis=(-2, -1))

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
        return x + (x + self.out(attended))


class Embedding(nn.Module):
    """Looks up rows of a table.

    The table may be a part of the whole one: some of the width of every row.
    """

    rows: int
    dim: int

    @nn.compact
    def __call__(self, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        if self.is_initializing():
            self.param("embedding", _SMALL, (self.rows, self.dim))
        return rows_of(self.get_variable("params", "embedding"), ids)


def embedding(rows: int, dim: int, name: str | None = None) -> Embedding:
    return Embedding(rows, dim, name=name)


def head(
    vocab: int, precision: jax.lax.Precision | None = None, name: str | None = None
) -> nn.DenseGeneral:
    """Hidden states to logits, untied."""
    return _dense(vocab, name, precision=precision, kernel_init=_SMALL)


def project(dim: int, name: str | None = None) -> nn.DenseGeneral:
    """A plain linear map."""
    return _dense(dim, name)


def _dense(features, name=None, *, axis=-1, precision=None, kernel_init=_KERNEL):
    return nn.DenseGeneral(
        features,
        axis=axis,
        use_bias=False,
        kernel_init=kernel_init,
        precision=precision,
        name=name,
    )
