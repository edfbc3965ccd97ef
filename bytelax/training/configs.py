"""Configurations of a training run: its text, losses, optimizer and checkpoints.

Like every `configs.py`, this file imports no JAX, so that the command line can show its flags at
once.
"""

import dataclasses
import math
import re
import shlex
from typing import Annotated, Any, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bytelax.checked import Checked, check_least


class DataError(ValueError):
    """Training text cannot be read or used; the message is one line that says what is wrong."""


@dataclasses.dataclass(frozen=True)
class Source(Checked):
    r"""A source of training text: files, how they divide into documents, and a sampling weight.

    A `.txt` file is one document unless `separator` splits it, a `.py` file is one, and each line
    `{"text": ...}` of a `.jsonl` file is one. Documents that contain only white space are dropped.

    Attributes:
      path: a file, a directory (all files with a suffix above, subdirectories included), or a glob
        (`**` crosses directories). Any of the files may be gzipped: `.txt.gz`.
      weight: weight with which windows are sampled from this source, relative to other sources.
      valid: files held out for validation, written as `path`; they are not trained on. By default
        a share `DataConfig.valid_fraction` of the documents of `path` is held out.
      separator: a regular expression for the text between the documents of a `.txt` file, which
        belongs to none of them; `^` and `$` match at every line. Two blank lines: `\n{3,}`.
        A header to drop: `\n*^# file: .*\n`. A header to keep: `^(?=# file: )`.
    """

    path: str
    weight: float = 1.0
    valid: str = ""
    separator: str = ""

    def __post_init__(self):
        super().__post_init__()
        if not self.path:
            raise DataError("a source needs a path")
        if not (self.weight > 0 and math.isfinite(self.weight)):
            raise DataError(f"{self.path}: the weight must be positive, not {self.weight}")
        try:
            re.compile(self.separator)
        except re.error as error:
            raise DataError(f"{self.path}: separator {self.separator!r}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> "Source":
        r"""Parses a source from a line such as `books/*.txt.gz weight=2 separator="\n{3,}"`.

        The path comes first. Words are quoted as in a shell.
        """
        try:
            path, *settings = shlex.split(text)
            fields: dict[str, Any] = dict(setting.split("=", 1) for setting in settings)
            return cls(path, **fields | {"weight": float(fields.get("weight", 1))})
        except DataError:
            raise
        except (TypeError, ValueError):
            form = "a source is a path, then any of weight=, valid=, separator="
            raise DataError(f"{text!r}: {form}") from None

    def __str__(self) -> str:
        """Formats the source as a line that `parse` reads back."""
        settings = {"weight": self.weight, "valid": self.valid, "separator": self.separator}
        words = [f"{name}={value}" for name, value in settings.items() if value not in ("", 1.0)]
        return shlex.join([self.path, *words])


# tyro cannot parse a tuple of dataclasses, so each source is one argument on the command line.
_SOURCE_ARGUMENTS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="'PATH [weight=..] [valid=..] [separator=..]' ..",
    instance_from_str=lambda arguments: tuple(map(Source.parse, arguments)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda sources: list(map(str, sources)),
)


@dataclasses.dataclass(frozen=True)
class DataConfig(Checked):
    """Training text, and how it is divided into windows and batches."""

    place = "data."

    sources: Annotated[
        tuple[Source, ...],
        _SOURCE_ARGUMENTS,
        tyro.conf.arg(name="data", prefix_name=False),
    ] = ()
    """Text to train on: files, directories or globs of .txt and .py (a file is a document) and
    .jsonl (a line with a "text" is one), plain or .gz. separator= cuts a .txt file into documents,
    and valid= names files to hold out; see docs/training.md."""
    window: int = 1024
    """Number of targets in an example, which has one more id than that."""
    batch: int = 32
    """Number of examples in a step, over all processes."""
    seed: int = 0
    """Seed of the order of documents and windows."""
    valid_fraction: float = 0.01
    """Share of the text held out for validation, in sources without valid=: documents chosen by
    their hash, or the tail of the text if it has too few documents for that."""
    prefetch: int = 4
    """Number of batches that a thread reads ahead; 0 reads each batch when it is needed."""

    def __post_init__(self):
        super().__post_init__()
        for name, least in (("window", 1), ("batch", 1), ("prefetch", 0)):
            if (value := vars(self)[name]) < least:
                raise DataError(f"data.{name} must be at least {least}, not {value}")
        if not 0 <= self.valid_fraction < 1:
            raise DataError(f"data.valid_fraction must be in [0, 1), not {self.valid_fraction}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorruptionConfig(Checked):
    """How blocks are sampled from a text and masked.

    Attributes:
      block_sizes: possible numbers of bytes in a block; one of them is sampled for each text.
      mid_patch: share of the blocks that start at a random position instead of at a patch.
      t_for_each: whether t is sampled once for each "text" (the paper) or for each "block".
      smallest_t: t is uniform in [smallest_t, 1); 0 in the paper. The loss divides by it.
      most_blocks: number of blocks to sample at random from each text; None takes all, but no more
        than `max_patches`.
    """

    block_sizes: tuple[int, ...] = (4,)
    mid_patch: float = 0.0
    t_for_each: Literal["text", "block"] = "text"
    smallest_t: float = 0.05
    most_blocks: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if not self.block_sizes or min(self.block_sizes) < 1:
            raise ValueError(f"block_sizes must be positive, got {self.block_sizes}")
        if not 0 <= self.mid_patch <= 1:
            raise ValueError(f"mid_patch is a share, 0..1, got {self.mid_patch}")
        if not 0 <= self.smallest_t < 1:
            raise ValueError(f"smallest_t must be in [0, 1), got {self.smallest_t}")
        check_least(self, 1, "most_blocks")


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextByteLoss(Checked):
    """The next-byte loss of a BLT.

    Attributes:
      max_patches: capacity for patches in a window. None allows one per byte, which costs time and
        memory.
      late: share of the patches whose latent the decoder reads one patch late, 0..1. This teaches
        it to draft past its patch, as in `blt-s`.
    """

    max_patches: int | None = None
    late: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        _check_late(self.late)


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointLoss(Checked):
    """Next-byte loss plus masked-byte loss of BLT-D (Fast BLT, arXiv 2605.08044, eqs. 5 to 7).

    Attributes:
      corruption: how blocks are sampled and masked.
      mask_loss: "sum" (the paper) sums 1 / t times the masked cross-entropies over all blocks and
        divides by the number of bytes in the text, so that its weight grows with the block size.
        "mean" divides by the number of cells instead.
      max_patches: capacity for patches in a window. None allows one per byte, which costs time and
        memory.
      late: as in `NextByteLoss`.
    """

    corruption: CorruptionConfig = CorruptionConfig()
    mask_loss: Literal["sum", "mean"] = "sum"
    max_patches: int | None = None
    late: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        _check_late(self.late)


def _check_late(share):
    if not 0 <= share <= 1:
        raise ValueError(f"late is a share of the patches, 0..1, got {share}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsLoss(Checked):
    """Loss of prediction heads.

    Attributes:
      loss_of: "kl" for KL(model || head) (arXiv 2310.08461, section 3), or "lk" for
        -log sum(min(p, q)) (arXiv 2602.23881), where sum(min(p, q)) is the probability that a
        drafted byte is accepted.
      own_outputs: number of steps that a draft layer is unrolled for in training, all but the first
        of them on its own outputs (EAGLE-3, arXiv 2503.01840, "training-time test").
      decay: the loss at byte k of a draft has weight exp(-(k - 1) / decay); None weighs all alike.
      blocks: number of random blocks per text that a draft block or a block table is trained on.
      max_patches: largest number of closed patches in the pass of a BLT; None is one per byte.
    """

    loss_of: Literal["kl", "lk"] = "kl"
    own_outputs: int = 4
    decay: float | None = None
    blocks: int = 32
    max_patches: int | None = None

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 1, "own_outputs", "blocks")
        if self.decay is not None and not self.decay > 0:
            raise ValueError(f"decay must be positive, got {self.decay}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Checked):
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

    place = "optimizer."

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
        super().__post_init__()
        check_least(self, 1, "steps", "accumulate", place=self.place)
        if not 0 <= self.warmup_steps <= self.steps:
            raise ValueError(
                f"optimizer.warmup must lie in 0..{self.steps}, the steps, got {self.warmup}"
            )
        most = self.steps - self.warmup_steps
        if self.cooldown is not None and not 0 <= self.cooldown <= most:
            raise ValueError(
                f"optimizer.cooldown must lie in 0..{most}, the steps after the warm-up of "
                f"{self.warmup_steps}, got {self.cooldown}"
            )
        for field in ("peak", "muon_peak"):
            if (value := vars(self)[field]) <= 0:
                raise ValueError(f"optimizer.{field} must be positive, got {value}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"optimizer.clip must be positive or None, got {self.clip}")

    @property
    def warmup_steps(self) -> int:
        """Number of steps of linear warm-up."""
        return min(100, self.steps // 10) if self.warmup is None else self.warmup


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(Checked):
    """Execution, logging, validation and checkpoints of a training run.

    Attributes:
      seed: seed of the parameters and of the random numbers of every step.
      dtype: compute dtype of the model; the optimizer keeps float32 parameters.
      remat: rematerialize each block in the backward pass instead of storing its activations.
      scan: run a stack as a scan over its blocks, which compiles faster; for accelerators.
      log_every: number of steps between two lines of metrics.
      validate_every: number of steps between two validations; 0 never validates.
      validation_batches: number of batches in a validation, the same ones each time.
      save_every: number of steps between two checkpoints; by default `validate_every`, or 500
        without validations. 0 saves at the end only.
      keep_last: number of latest checkpoints to keep.
    """

    place = "run."

    seed: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    remat: bool = False
    scan: bool = False
    log_every: int = 10
    validate_every: int = 500
    validation_batches: int = 8
    save_every: int | None = None
    keep_last: int = 2

    def __post_init__(self):
        super().__post_init__()
        check_least(self, 1, "log_every", "validation_batches", "keep_last", place=self.place)
        check_least(self, 0, "validate_every", "save_every", place=self.place)

    @property
    def save_steps(self) -> int:
        """Number of steps between two checkpoints; 0 saves at the end only."""
        return self.save_every if self.save_every is not None else self.validate_every or 500
