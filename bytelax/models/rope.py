"""Rotary frequencies, and their scalings for texts longer than those of the first training.

Sources: `transformers.modeling_rope_utils`, which all of them are compared with; YaRN (arXiv
2309.00071).
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
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        low, high = scaling.low_freq_factor, scaling.high_freq_factor
        turns = scaling.original_positions * plain / (2 * math.pi)
        kept = (turns - low) / (high - low)
    else:
        first, last = (_index(config, turns) for turns in (scaling.beta_fast, scaling.beta_slow))
        if scaling.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, config.head_dim - 1)
        if first == last:
            last += 0.001
        kept = 1 - (jnp.arange(len(plain), dtype=jnp.float32) - first) / (last - first)
    kept = jnp.clip(kept, 0, 1)
    return plain / scaling.factor * (1 - kept) + plain * kept


def _index(config, turns):
    """The index, a real number, of the frequency that turns so often in the first training."""
    assert config.rope_scaling is not None
    period = config.rope_scaling.original_positions / (turns * 2 * math.pi)
    return config.head_dim * math.log(period) / (2 * math.log(config.rope_theta))
