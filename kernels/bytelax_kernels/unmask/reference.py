"""jnp implementation of `unmask`: the oracle of the kernels and the CPU path."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.unmask.rule import Rule, Unmasked


def unmask(
    logits: Float[Array, "B C V"],
    ids: Int[Array, "B C"],
    masked: Bool[Array, "B C"],
    uniforms: Float[Array, "B C"],
    temperature: Float[Array, " B"] | None,
    rule: Rule,
) -> Unmasked:
    """By sorting the cells, and summing up probabilities until the uniform number is reached."""
    own = jax.nn.log_softmax(logits.astype(jnp.float32))
    if temperature is None:
        law, drawn = None, logits.argmax(-1)
    else:
        law = jax.nn.log_softmax(logits / temperature[:, None, None])
        mass = jnp.cumsum(jnp.exp(law), axis=-1)
        reached = (mass > uniforms[..., None] * mass[..., -1:]) & (law > -jnp.inf)
        drawn = jnp.where(reached.any(-1), reached.argmax(-1), law.argmax(-1))
    drawn = drawn.astype(jnp.int32)
    chosen = _chosen(own, masked, rule)
    confidence = jnp.exp(jnp.take_along_axis(own, drawn[..., None], axis=-1)[..., 0])
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn, confidence, law)


def _chosen(log_probs, masked, rule):
    if rule.kind == "all":
        return masked
    if rule.kind == "confidence":
        surest = jnp.where(masked, jnp.exp(log_probs.max(-1)), -1.0)
        first = jnp.arange(masked.shape[1]) == surest.argmax(1)[:, None]
        return masked & ((surest > rule.bound) | first)
    likely = log_probs > -jnp.inf  # what is impossible has no share: 0 log 0 = 0
    entropy = -jnp.where(likely, jnp.exp(log_probs) * log_probs, 0).sum(-1)
    entropy = jnp.where(masked, jnp.maximum(entropy, 0), jnp.inf)
    order = jnp.argsort(entropy, axis=1)  # stable: equals from left to right
    ascending = jnp.take_along_axis(entropy, order, axis=1)
    total = jnp.cumsum(ascending, axis=1)
    if rule.kind == "entropy-but-one":
        total = total - ascending
    within = (total <= rule.bound).at[:, 0].set(True)
    return masked & jnp.take_along_axis(within, jnp.argsort(order, axis=1), axis=1)
