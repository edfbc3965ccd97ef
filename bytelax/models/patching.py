"""Patch boundaries from next-byte entropies, decided as the bytes arrive.

The predictive rule of BLT (arXiv 2412.09871, section 2.3, and its released patcher): whether byte
i + 1 starts a patch is known from bytes up to i. Positions 0 and 1 always start one, so that the
first patch is the BOS alone. The same function serves a whole text and one window of it.
"""

import dataclasses
import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchingConfig:
    """When a patch ends.

    Attributes:
      mode: "entropy" asks the entropy model; "stride" ends a patch every `stride` bytes; "byte"
        makes every byte a patch.
      threshold: nats. Byte i + 1 starts a patch where entropy e_i exceeds it.
      monotonicity: compare e_i - e_(i-1) with `threshold` instead; overrules `threshold_add`.
      threshold_add: both must hold: e_i > threshold and e_i - e_(i-1) > threshold_add.
      max_patch_length: longer patches are cut into pieces of this length; None leaves them.
      stride: bytes a patch in mode "stride".
    """

    mode: Literal["entropy", "stride", "byte"] = "entropy"
    threshold: float = 1.335442066192627
    monotonicity: bool = False
    threshold_add: float | None = None
    max_patch_length: int | None = None
    stride: int = 4

    def __post_init__(self):
        if self.mode not in ("entropy", "stride", "byte"):
            raise ValueError(f"patching mode {self.mode!r} is not one of entropy, stride, byte")
        if not all(map(math.isfinite, (self.threshold, self.threshold_add or 0.0))):
            raise ValueError(f"patching thresholds must be finite, got {self.threshold}")
        if self.max_patch_length is not None and self.max_patch_length < 1:
            raise ValueError(f"max_patch_length must be at least 1, got {self.max_patch_length}")
        if self.stride < 1:
            raise ValueError(f"patching stride must be at least 1, got {self.stride}")


class OpenPatch(NamedTuple):
    """State of the patching rule. Leading axes: B, or B and a slot."""

    start: Int[Array, " *B"]  # first byte of the open patch
    rule_start: Int[Array, " *B"]  # the same before cutting to max_patch_length
    entropy: Float[Array, " *B"]  # of the byte before, nats


def no_patch(batch: int) -> OpenPatch:
    """Before the first byte: position 0 starts a patch."""
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
    """The open patch before and after each byte of a window.

    Args:
      state: the open patch before the window, [B].
      entropies: e_i of the window's bytes.
      positions: their positions.
      config: the rule.

    Returns:
      Arrays [B, W + 1]; slot w is the patch that byte w of the window belongs to, slot W the
      patch of the byte after it. Byte w closes its patch iff `start[:, w + 1]` is its position + 1.
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
    """Whether each byte of the window is the last of its patch."""
    return open_patch.start[:, 1:] == positions + 1


def _starts(entropy, before, i, config):
    """Whether byte i + 1 starts a patch, before any cutting."""
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
