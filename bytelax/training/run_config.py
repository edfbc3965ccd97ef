"""Configuration of a training run beside its model, its data and its optimizer."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Execution, logging, validation and checkpoints of a training run.

    Attributes:
      seed: seed of the parameters and of the random numbers of every step.
      dtype: compute dtype of the model; the optimizer keeps float32 parameters.
      remat: rematerialize each block in the backward pass instead of storing its activations.
      scan: run a stack as a scan over its blocks, which compiles faster; for accelerators.
      log_every: number of steps between two lines of metrics.
      validate_every: number of steps between two validations; 0 never validates.
      validation_batches: number of batches in a validation, the same ones each time.
      sample_every: number of steps between two rounds of samples; 0 generates none. Runs of several
        processes generate none either.
      sample_prompts: prompts of the samples.
      sample_bytes: number of bytes in a sample.
      sample_temperature: sampling temperature; 0 is greedy.
      save_every: number of steps between two checkpoints, a multiple of `validate_every`, so that
        every checkpoint can be ranked; by default the same, or 500 without validations. 0 saves at
        the end only.
      keep_last: number of latest checkpoints to keep.
      keep_best: number of checkpoints with the best validation result to keep in addition.
      profile_steps: number of steps to record with JAX's profiler, after the first one; 0 records
        none. TensorBoard and XProf read what is written to `profile` in the run's directory.
    """

    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    scan: bool = False
    log_every: int = 10
    validate_every: int = 500
    validation_batches: int = 8
    sample_every: int = 0
    sample_prompts: tuple[str, ...] = ("The ",)
    sample_bytes: int = 128
    sample_temperature: float = 0.8
    save_every: int | None = None
    keep_last: int = 2
    keep_best: int = 1
    profile_steps: int = 0

    def __post_init__(self):
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"run.dtype {self.dtype!r} is not float32 or bfloat16")
        for field in ("log_every", "validation_batches", "keep_last"):
            if getattr(self, field) < 1:
                raise ValueError(f"run.{field} must be at least 1, got {getattr(self, field)}")
        for field in ("validate_every", "sample_every", "save_every", "keep_best", "profile_steps"):
            if (getattr(self, field) or 0) < 0:
                raise ValueError(f"run.{field} must not be negative, got {getattr(self, field)}")
        if self.validate_every and self.save_steps % self.validate_every:
            raise ValueError(
                f"run.save_every {self.save_every} must be a multiple of run.validate_every "
                f"{self.validate_every}, so that every checkpoint can be ranked"
            )

    @property
    def save_steps(self) -> int:
        """Number of steps between two checkpoints; 0 saves at the end only."""
        return self.save_every if self.save_every is not None else self.validate_every or 500
