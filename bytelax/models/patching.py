"""Incremental patch boundaries from next-byte entropies.

This is the causal patching rule of BLT (arXiv 2412.09871, section 2.3, and its released patcher):
whether byte i + 1 starts a patch depends only on bytes up to i. Positions 0 and 1 always start a
patch, so the first patch is the BOS alone. The same function handles a whole text and a window of
one.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.models.configs import PatchingConfig


class OpenPatch(NamedTuple):
    """State of the patching rule, with leading axes [B] or [B, number of states]."""

    start: Int[Array, " *B"]  # position of the first byte of the open patch
    rule_start: Int[Array, " *B"]  # the same before patches are cut to max_patch_length
    entropy: Float[Array, " *B"]  # e_i of the latest byte i, in nats


def no_patch(batch: int) -> OpenPatch:
    """The initial state, before the first byte: position 0 starts a patch."""
    return OpenPatch(
        jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.int32), jnp.zeros(batch, jnp.float32)
    )


def open_patches(
    state: OpenPatch,
    entropies: Float[Array, "B W"],
    positions: Int[Array, "B W"],
    *,
    config: PatchingConfig,
) -> OpenPatch:
    """Advances the patching rule over a window: the open patch before and after each byte.

    Args:
      state: the open patch before the window, with axes [B].
      entropies: entropies e_i, in nats, after each byte of the window.
      positions: positions of the bytes in their texts.
      config: the patching rule.

    Returns:
      The states with axes [B, W + 1]. Entry w is the patch that byte w of the window belongs to,
      and entry W is the patch of the byte after the window. Byte w is the last of its patch if and
      only if `start[:, w + 1]` is its position plus 1.
    """
    entropy = jnp.concatenate([state.entropy[:, None], entropies], axis=1)
    after = positions + 1
    rule = jnp.where(_starts(entropies, entropy[:, :-1], positions, config), after, -1)
    rule = jnp.concatenate([state.rule_start[:, None], rule], axis=1)
    rule = jax.lax.cummax(rule, axis=1)
    if config.max_patch_length is None:
        return OpenPatch(rule, rule, entropy)
    cut = (after - rule[:, 1:]) % config.max_patch_length == 0
    start = jnp.concatenate([state.start[:, None], jnp.where(cut, after, -1)], axis=1)
    return OpenPatch(jax.lax.cummax(start, axis=1), rule, entropy)


def closing(open_patch: OpenPatch, positions: Int[Array, "B W"]) -> Bool[Array, "B W"]:
    """Whether each byte of a window is the last of its patch, from the result of `open_patches`."""
    return open_patch.start[:, 1:] == positions + 1


def _starts(entropy, before, i, config):
    """Whether byte i + 1 starts a patch, before patches are cut to `max_patch_length`."""
    forced = i == 0
    if config.mode == "byte":
        return jnp.ones_like(forced)
    if config.mode == "stride":
        return i % config.stride == 0
    rise = entropy - before
    if config.monotonicity:
        return forced | (i == 1) | (rise > config.threshold)
    high = entropy > config.threshold
    if config.threshold_add is None:
        return forced | high
    # As released: position 2 always starts a patch and position 3 never does.
    return forced | (i == 1) | ((i != 2) & (rise > config.threshold_add) & high)


def next_byte_entropy(logits: Float[Array, "*B V"]) -> Float[Array, "*B"]:
    """Entropy, in nats, of the next-byte distribution over all ids (arXiv 2412.09871, eq. 1)."""
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.sum(jnp.exp(log_probs) * log_probs, axis=-1)
