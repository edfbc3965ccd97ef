"""Configuration of the optimizer."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """AdamW (arXiv 1711.05101) as in BLT and Fast BLT (arXiv 2605.08044, section 4), or Muon.

    Weight decay applies only to matrices that multiply activations (`kernel`). Norm scales should
    not shrink to 0, and a rarely used row of an embedding would decay between two updates.

    Attributes:
      name: "adamw", or "muon" (Jordan et al., 2024), which orthogonalizes the update of every
        hidden matrix and uses AdamW for embeddings, norms and the output layer. The size of a Muon
        update does not depend on the size of the gradient, so the encoder and the global
        transformer of a small BLT learn from the first step (docs/training_blt.md).
      steps: number of steps of the run, and so the length of the schedule.
      peak: peak learning rate of AdamW, reached after the warm-up.
      muon_peak: peak learning rate of Muon, whose updates have a spectral norm of about 1.
      warmup: number of steps of linear warm-up; by default 100, or a tenth of a shorter run.
      final: the learning rate at the end, as a fraction of the peak.
      cooldown: number of steps at the end in which the learning rate falls linearly, after being
        constant. None uses cosine decay from the end of the warm-up. A run with a cooldown may be
        resumed with another number of steps.
      beta1: decay rate of Adam's first moment.
      beta2: decay rate of Adam's second moment.
      eps: added to the denominator of Adam's update.
      weight_decay: weight decay coefficient; it is multiplied by the learning rate.
      clip: largest global norm of the gradient; None does not clip.
      accumulate: number of microbatches that the batch of a step is divided into.
    """

    name: Literal["adamw", "muon"] = "adamw"
    steps: int = 1000
    peak: float = 4e-4
    muon_peak: float = 0.02
    warmup: int | None = None
    final: float = 0.0
    cooldown: int | None = None
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0
    accumulate: int = 1

    def __post_init__(self):
        if self.name not in ("adamw", "muon"):
            raise ValueError(f"optimizer.name {self.name!r} is not adamw or muon")
        if self.steps < 1:
            raise ValueError(f"optimizer.steps must be at least 1, got {self.steps}")
        if not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(
                f"optimizer.warmup must lie in 0..{self.steps}, the steps, got {self.warmup}"
            )
        most = self.steps - self.warmup_steps
        if self.cooldown is not None and not 0 <= self.cooldown <= most:
            raise ValueError(
                f"optimizer.cooldown must lie in 0..{most}, the steps behind the warm-up of "
                f"{self.warmup_steps}, got {self.cooldown}"
            )
        for field in ("peak", "muon_peak"):
            if getattr(self, field) <= 0:
                raise ValueError(f"optimizer.{field} must be positive, got {getattr(self, field)}")
        if self.accumulate < 1:
            raise ValueError(f"optimizer.accumulate must be at least 1, got {self.accumulate}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"optimizer.clip must be positive or None, got {self.clip}")

    @property
    def warmup_steps(self) -> int:
        """Number of steps of linear warm-up."""
        return min(100, self.steps // 10) if self.warmup is None else self.warmup
