"""Rotary position embeddings."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int


def frequencies(dim: int, theta: float) -> Float[Array, " {dim//2}"]:
    """The frequency of each pair of a head, in radians per position."""
    return 1.0 / theta ** (jnp.arange(0, dim, 2, dtype=jnp.float32) / dim)


def rotary(
    x: Float[Array, "B W H D"], positions: Int[Array, "B W"], frequency: Float[Array, " F"]
) -> Float[Array, "B W H D"]:
    """Applies rotary position embeddings to the interleaved pairs (0, 1), (2, 3), ... of each head.

    Source: RoPE (arXiv 2104.09864). Phases are computed in float32 for any dtype of `x`, because a
    lower precision would move entropies across the patching threshold.

    Args:
      x: queries or keys.
      positions: position of each of the W entries.
      frequency: of each pair; see `frequencies`.
    """
    phase = positions[..., None, None].astype(jnp.float32) * frequency
    cos, sin = jnp.cos(phase), jnp.sin(phase)
    pairs = x.astype(jnp.float32).reshape(*x.shape[:-1], len(frequency), 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    rotated = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return rotated.reshape(x.shape).astype(x.dtype)
