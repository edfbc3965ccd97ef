"""The flags of `bytelax train`: one class for each kind of run. Nothing here imports JAX."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from bytelax.commands.mesh import MeshFlag
from bytelax.models.configs import (
    BLTSizes,
    ByteLMConfig,
    HashConfig,
    HeadsConfig,
    PatchingConfig,
    TransformerConfig,
)
from bytelax.pods.configs import MeshConfig, Processes
from bytelax.training.configs import (
    DataConfig,
    HeadsLoss,
    JointLoss,
    NextByteLoss,
    OptimizerConfig,
    RunConfig,
)

NOT_RECORDED = {"out", "config", "preset", "json", "processes"}


_SIZES = BLTSizes(
    encoder=TransformerConfig(dim=256, layers=1, window=512),
    global_transformer=TransformerConfig(dim=512, layers=8),
    decoder=TransformerConfig(dim=256, layers=3, window=512),
    patching=PatchingConfig(),
    hashing=HashConfig(vocab=20_011),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Options that all kinds of training runs share."""

    out: pathlib.Path
    """Directory of the run. If it holds a checkpoint of the same config, the run is resumed."""
    preset: Literal["laptop", "100m", "1b"] | None = None
    """Sizes of model, batch and run to start from; every flag below replaces one of them."""
    config: pathlib.Path | None = None
    """A TOML file with the fields below, such as `OUT/config.toml`; flags take precedence."""
    json: bool = False
    """Print the result as JSON."""
    init: str | None = None
    """A model to start from, with its config: a directory, a training run, a bundled model."""
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshFlag = MeshConfig()
    """Mesh of devices, with the axes data, fsdp and tensor; omitted axes have size 1."""
    run: RunConfig = RunConfig()
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()


# No kind is a subclass of another, because tyro would take the defaults of one for the other's.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteLMRun(Run):
    """Options of the kinds whose model is a byte transformer."""

    model: ByteLMConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteTransformer(ByteLMRun):
    """Train a byte transformer, alone or by distillation from a teacher."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    teacher: str | None = None
    """A model to distil from, as in --init; useful for training a draft model."""
    teacher_weight: float = 0.5
    """Weight of the divergence from the teacher; the next-byte loss has the rest."""
    teacher_max_patches: int | None = None
    """Capacity for patches in a window, if the teacher is a BLT; None allows one per byte."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsOf(HeadsLoss, ByteLMRun):
    """Train the heads with which a byte transformer or a BLT drafts for itself.

    The model is frozen. The result holds both, and `OUT/heads` the heads alone, for
    `load(..., heads=)`.
    """

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    heads: HeadsConfig = HeadsConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entropy(ByteLMRun):
    """Train an entropy model: a small byte transformer that divides text into patches for a BLT."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=128, layers=3, window=512))


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTRun(Run):
    """Options of the kinds whose model is a BLT."""

    patcher: str | None = None
    """An entropy model, or a BLT that has one, as in --init. `bytelax calibrate` finds the
    threshold to give as --model.patching.threshold."""
    model: BLTSizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainBLT(BLTRun):
    """Train a Byte Latent Transformer with a trained entropy model, which stays fixed."""

    model: BLTSizes = _SIZES
    objective: NextByteLoss = NextByteLoss()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusionBLT(BLTRun):
    """Train a BLT-D (arXiv 2605.08044), which also predicts blocks of masked bytes."""

    model: BLTSizes = dataclasses.replace(_SIZES, decoder_input="embedding")
    objective: JointLoss = JointLoss()


KINDS = {
    "entropy": Entropy, "byte-lm": ByteTransformer, "heads": HeadsOf, "blt": PlainBLT,
    "blt-d": BlockDiffusionBLT,
}  # fmt: skip
