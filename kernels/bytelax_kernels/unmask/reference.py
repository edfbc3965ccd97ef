"""jnp implementation of `unmask`: the oracle for the kernels, and the CPU path."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bytelax_kernels.unmask.rule import Block, Rule, Unmasked


def unmask(block: Block, rule: Rule) -> Unmasked:
    """Computes one unmasking step, by sorting the cells; see `api.unmask`."""
    logits, ids, masked, drawn = block
    own = jax.nn.log_softmax(logits)
    if drawn is None:
        drawn = logits.argmax(-1).astype(jnp.int32)
    chosen = chosen_by(rule, own, masked)
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn)


def chosen_by(
    rule: Rule, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
) -> Bool[Array, "B C"]:
    """Which masked cells the rule fills in, from the model's log-probabilities."""
    if rule.kind == "all":
        return masked
    if rule.kind == "confidence":
        surest = jnp.where(masked, jnp.exp(log_probs.max(-1)), -1.0)
        first = jnp.arange(masked.shape[1]) == surest.argmax(1)[:, None]
        return masked & ((surest > rule.bound) | first)
    finite = jnp.isfinite(log_probs)  # 0 log 0 = 0 for ids that are never emitted
    entropy = -jnp.sum(jnp.where(finite, jnp.exp(log_probs) * log_probs, 0), axis=-1)
    entropy = jnp.where(masked, jnp.maximum(entropy, 0), jnp.inf)
    order = jnp.argsort(entropy, axis=1)  # stable: ties from left to right
    ascending = jnp.take_along_axis(entropy, order, axis=1)
    certain = jnp.where(jnp.isfinite(ascending), ascending, 0)
    total = jnp.cumsum(certain, axis=1)
    if rule.kind == "entropy-but-one":
        total = total - certain
    within = (total <= rule.bound).at[:, 0].set(True)
    return masked & jnp.take_along_axis(within, jnp.argsort(order, axis=1), axis=1)
