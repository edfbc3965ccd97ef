"""The flags of `bytelax train`: one class for each kind of run. Nothing here imports JAX."""

import dataclasses
import pathlib
from typing import Annotated, Literal

import tyro

from bytelax.commands.mesh import MeshFlag
from bytelax.models.blt_config import BLTConfig
from bytelax.models.byte_lm_config import ByteLMConfig
from bytelax.models.hash_config import HashConfig
from bytelax.models.heads_config import HeadsConfig
from bytelax.models.patching_config import PatchingConfig
from bytelax.models.transformer_config import TransformerConfig
from bytelax.pods.mesh_config import MeshConfig
from bytelax.pods.processes import Processes
from bytelax.training.corruption_config import CorruptionConfig
from bytelax.training.data_config import DataConfig
from bytelax.training.loss_of import LossOf
from bytelax.training.optimizer_config import OptimizerConfig
from bytelax.training.run_config import RunConfig

NOT_RECORDED = {"out", "config", "preset", "json", "processes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTShape:
    """Sizes of a BLT without its entropy model; see `bytelax.models.blt.BLTConfig`.

    Attributes:
      encoder: stack over bytes whose states are pooled into patches.
      global_transformer: stack over patches.
      decoder: stack over bytes that predicts the next byte.
      patching: the rule that divides a text into patches.
      hashing: the hash n-gram embeddings.
      patch_vectors: number of vectors that represent a patch in both cross-attentions.
      decoder_cross_attention: whether "all" layers of the decoder read the latent, or only the
        "first".
      decoder_input: whether the decoder reads the "encoder" states or has a byte "embedding".
      mask_documents: whether bytes and patches do not attend past the latest EOS.
      max_bytes: longest text that the model supports, BOS included.
    """

    encoder: TransformerConfig = TransformerConfig(dim=256, layers=1, window=512)
    global_transformer: TransformerConfig = TransformerConfig(dim=512, layers=8)
    decoder: TransformerConfig = TransformerConfig(dim=256, layers=3, window=512)
    patching: PatchingConfig = PatchingConfig()
    hashing: HashConfig = HashConfig(vocab=20_011)
    patch_vectors: int = 2
    decoder_cross_attention: Literal["all", "first"] = "all"
    decoder_input: Literal["encoder", "embedding"] = "encoder"
    mask_documents: bool = False
    max_bytes: int = 4096

    def config(self, patcher: ByteLMConfig | None) -> BLTConfig:
        """The config of a BLT with these sizes and the given entropy model."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return BLTConfig(patcher=patcher, **fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextByteLoss:
    """The next-byte loss of a BLT."""

    max_patches: int | None = None
    """Capacity for patches in a window. None allows one per byte, which costs time and memory."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointLoss:
    """The joint loss of Fast BLT; see `bytelax.training.objectives.BLTD`."""

    corruption: CorruptionConfig = CorruptionConfig()
    mask_loss: Literal["sum", "mean"] = "sum"
    """"sum" as in the paper; "mean" divides by the number of cells in blocks instead of bytes."""
    mask_weight: float = 1.0
    """Weight of the masked-byte loss."""
    exit_layer: int | None = None
    """Number of decoder layers after which an early exit is trained, for `blt-s` to draft with."""
    exit_weight: float = 0.2
    """Weight of the early exit's loss."""
    max_patches: int | None = None
    """Capacity for patches in a window. None allows one per byte, which costs time and memory."""


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
class HeadsOf(ByteLMRun):
    """Train the heads with which a byte transformer or a BLT drafts for itself.

    The model is frozen. The result holds both, and `OUT/heads` the heads alone, for
    `load(..., heads=)`.
    """

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    heads: HeadsConfig = HeadsConfig()
    loss_of: LossOf = "kl"
    """Loss of the heads: a distance to the model's distributions, or cross-entropy on the text."""
    joint: bool = False
    """Train the trunk of a byte transformer too, from scratch unless --init is given."""
    head_weight: float = 1.0
    """Weight of the heads' loss relative to the trunk's own."""
    own_outputs: int = 4
    """Number of steps that a draft layer is unrolled for, all but the first on its own outputs."""
    decay: float | None = None
    """Bytes of a draft after which the weight of the loss is 1 / e; None weighs all bytes alike."""
    blocks: int = 32
    """Number of random blocks that a draft block is trained on in each window."""
    max_patches: int | None = None
    """Largest number of patches in a window of a BLT; None is one per byte."""


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
    model: BLTShape


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainBLT(BLTRun):
    """Train a Byte Latent Transformer with a trained entropy model, which stays fixed."""

    model: BLTShape = BLTShape()
    objective: NextByteLoss = NextByteLoss()


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusionBLT(BLTRun):
    """Train a BLT-D (arXiv 2605.08044), which also predicts blocks of masked bytes."""

    model: BLTShape = BLTShape(decoder_input="embedding")
    objective: JointLoss = JointLoss()


KINDS = {
    "entropy": Entropy, "byte-lm": ByteTransformer, "heads": HeadsOf, "blt": PlainBLT,
    "blt-d": BlockDiffusionBLT,
}  # fmt: skip
