"""Rotary frequencies, and their scaling for texts longer than those of the first training.

Source: `transformers.modeling_rope_utils`, which they are compared with.
"""

import math

import jax.numpy as jnp
from bytelax_kernels.append_attention import frequencies as unscaled
from jaxtyping import Array, Float

from bytelax.models.configs import TransformerConfig


def frequencies(config: TransformerConfig) -> Float[Array, " {config.head_dim//2}"]:
    """The frequency of each pair of a head, in radians per position."""
    plain, scaling = unscaled(config.head_dim, config.rope_theta), config.rope_scaling
    if scaling is None:
        return plain
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    turns = scaling.original_positions * plain / (2 * math.pi)
    kept = jnp.clip((turns - low) / (high - low), 0, 1)
    return plain / scaling.factor * (1 - kept) + plain * kept
