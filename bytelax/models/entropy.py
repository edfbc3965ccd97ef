"""Next-byte entropies, from which BLT decides its patch boundaries."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def next_byte_entropy(logits: Float[Array, "*B V"]) -> Float[Array, "*B"]:
    """Entropy, in nats, of the next-byte distribution over all ids (arXiv 2412.09871, eq. 1)."""
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
