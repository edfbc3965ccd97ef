"""Configuration of the rule that divides a text into patches."""

import dataclasses
import math
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class PatchingConfig:
    """The rule that divides a text into patches.

    Attributes:
      mode: "entropy" uses the entropy model; "stride" ends a patch every `stride` bytes; "byte"
        makes every byte a patch.
      threshold: threshold in nats. Byte i + 1 starts a patch if e_i, the entropy of its predicted
        distribution, exceeds the threshold.
      monotonicity: compare e_i - e_(i-1) with `threshold` instead; `threshold_add` is then ignored.
      threshold_add: second threshold in nats. Byte i + 1 then starts a patch only if both
        e_i > threshold and e_i - e_(i-1) > threshold_add.
      max_patch_length: longer patches are cut into pieces of this many bytes; None does not cut.
      stride: number of bytes per patch in mode "stride".
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
