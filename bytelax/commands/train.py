"""`bytelax train entropy | byte-lm | heads | blt | blt-d`: trains a model, or resumes a run."""

import dataclasses
import functools
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import cattrs
import jax
import tyro

from bytelax import checkpoints
from bytelax import config as plain
from bytelax.checkpoints import config_fields
from bytelax.commands.json_line import json_line
from bytelax.commands.mesh import MeshFlag
from bytelax.loading import model_directory
from bytelax.models import architectures
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.hashing import HashConfig
from bytelax.models.heads import HeadsConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.transformer_config import TransformerConfig
from bytelax.pods import distributed, global_arrays, sharding
from bytelax.pods.distributed import Processes
from bytelax.pods.sharding import MeshConfig
from bytelax.training import data, train_loop
from bytelax.training.corruption import CorruptionConfig
from bytelax.training.data import DataConfig
from bytelax.training.documents import Source
from bytelax.training.head_objective import HeadLoss, LossOf
from bytelax.training.metrics import BITS_PER_BYTE
from bytelax.training.objectives import BLTD, Distillation, NextByte, Objective
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_loop import RunConfig, TrainConfig
from bytelax.training.train_state import TrainingError

_NOT_RECORDED = {"out", "config", "json", "processes"}


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
class _Run:
    """Options that all kinds of training runs share."""

    out: pathlib.Path
    """Directory of the run. If it holds a checkpoint of the same config, the run is resumed."""
    config: pathlib.Path | None = None
    """A TOML file with the fields below, such as `OUT/config.toml`; flags take precedence."""
    json: bool = False
    """Print the result as JSON."""
    init: str | None = None
    """Start from the parameters and the config of this model."""
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshFlag = MeshConfig()
    """Mesh of devices, with the axes data, fsdp and tensor; omitted axes have size 1."""
    run: RunConfig = RunConfig()
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()

    def start(self) -> None:
        """Runs the training and prints its result."""
        distributed.start(self.processes)
        if self.run.validate_every:  # reports missing data now, not after many steps
            for split in ("train", "valid"):
                data.examples(self.data, split)
        objective, initial = self.prepare()
        settings = TrainConfig(optimizer=self.optimizer, mesh=self.mesh, run=self.run)
        result = train_loop.train(
            settings, objective, self._batches, self.out, initial=initial, record=to_fields(self)
        )
        if not result.finished:
            raise KeyboardInterrupt
        if not distributed.is_first():
            return
        self.also_write(objective.module.config, result.params)
        if self.json:
            print(json_line({
                "out": str(self.out), "model": str(result.model), "step": result.step,
                "valid": result.valid,
            }))  # fmt: skip
            return
        count = sum(leaf.size for leaf in jax.tree.leaves(result.params))
        score = result.valid.get(BITS_PER_BYTE)
        known = "" if score is None else f", {score:.4f} bits per byte on the validation text"
        print(f"{result.model}: {count:,} parameters, {result.step} steps{known}")

    def prepare(self) -> tuple[Objective, Any]:
        """The objective, and a function that returns the initial parameters.

        None in place of the function initializes the parameters at random.
        """
        raise NotImplementedError

    def also_write(self, config, params) -> None:
        """Writes what a kind of run leaves beside its model."""

    def _batches(self, split, start):
        rows = global_arrays.rows_here(sharding.make_mesh(self.mesh), self.data.batch)
        return data.batches(self.data, split=split, start=start, rows=rows)

    def _initial(self, kind):
        """Config and float32 parameters of `init`, or None. The config must be of class `kind`."""
        if self.init is None:
            return None
        model = next(field for field in dataclasses.fields(self) if field.name == "model")
        if getattr(self, model.name) != model.default:
            raise ValueError("--init brings a config of its own: leave the --model flags out")
        config, params = checkpoints.read(model_directory(self.init), dtype="float32")
        if not isinstance(config, kind):
            raise ValueError(f"--init {self.init} is a {config_fields.kind(config)}")
        return config, params


# No kind is a subclass of another, because tyro would take the defaults of one for the other's.
@dataclasses.dataclass(frozen=True, kw_only=True)
class _ByteLMRun(_Run):
    model: ByteLMConfig

    def prepare(self):
        found = self._initial(ByteLMConfig)
        config, params = found or (self.model, None)
        return NextByte(ByteLM(config)), None if found is None else lambda: params


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteTransformer(_ByteLMRun):
    """Train a byte transformer, alone or by distillation from a teacher."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    teacher: str | None = None
    """A model to distil from, useful for training a draft model."""
    teacher_weight: float = 0.5
    """Weight of the divergence from the teacher; the next-byte loss has the rest."""
    teacher_max_patches: int | None = None
    """Capacity for patches in a window, if the teacher is a BLT; None allows one per byte."""

    def prepare(self):
        objective, initial = super().prepare()
        if self.teacher is None:
            return objective, initial
        config, taught = checkpoints.read(model_directory(self.teacher), dtype="float32")
        teacher = architectures.module_of(config)
        objective = Distillation(
            objective.module, teacher, self.teacher_weight, self.teacher_max_patches
        )

        def with_teacher():
            own = initial() if initial else NextByte(objective.module).init(self._key)
            return own | {"teacher": taught}

        return objective, with_teacher

    @property
    def _key(self):
        return jax.random.key(self.run.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadsOf(_ByteLMRun):
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

    def prepare(self):
        if self.init is None and not self.joint:
            raise ValueError("heads need --init, the trained model they are for (or --joint)")
        found = self._initial(ByteLMConfig | BLTConfig)
        config, params = found or (self.model, {})
        config = dataclasses.replace(config, heads=self.heads)
        fields = (
            "loss_of", "joint", "head_weight", "own_outputs", "decay", "blocks", "max_patches",
        )  # fmt: skip
        objective = HeadLoss(
            architectures.module_of(config), **{name: getattr(self, name) for name in fields}
        )
        if found is None:
            return objective, None
        known = {name: part for name, part in params.items() if name != "heads"}
        # Compiled, so that only the heads are made of a model that may be large.
        fresh = jax.jit(lambda key: objective.init(key)["heads"])
        return objective, lambda: known | {"heads": fresh(jax.random.key(self.run.seed))}

    def also_write(self, config, params):
        if jax.process_count() == 1:  # or they may lie on the devices of others
            checkpoints.write_heads(self.out / "heads", config, params)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entropy(_ByteLMRun):
    """Train an entropy model: a small byte transformer that divides text into patches for a BLT."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=128, layers=3, window=512))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BLTRun(_Run):
    patcher: str | None = None
    """Directory of the entropy model. `bytelax calibrate` finds `--model.patching.threshold`."""
    model: BLTShape

    def _blt(self, **changes):
        """The config of the BLT, and a function that returns its initial parameters, or None.

        `changes` replace fields in the config of `init`.
        """
        found = self._initial(BLTConfig)
        if found is not None:
            if self.patcher is not None:
                raise ValueError("--init brings its own entropy model: leave --patcher out")
            config, params = found
            config = dataclasses.replace(config, **changes)
            return config, functools.partial(_started, config, params, self.run.seed)
        mode = self.model.patching.mode
        if mode != "entropy":
            if self.patcher is not None:
                raise ValueError(f"patching mode {mode!r} asks no entropy model: drop --patcher")
            return self.model.config(None), None
        if self.patcher is None:
            raise ValueError("patching by entropy needs --patcher, from `bytelax train entropy`")
        patcher, _, params = checkpoints.read_patcher(model_directory(self.patcher))
        config = self.model.config(patcher)
        return config, functools.partial(_started, config, {"patcher": params}, self.run.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainBLT(_BLTRun):
    """Train a Byte Latent Transformer with a trained entropy model, which stays fixed."""

    model: BLTShape = BLTShape()
    objective: NextByteLoss = NextByteLoss()

    def prepare(self):
        config, initial = self._blt(block_size=0)  # without its loss, block prediction degrades
        return NextByte(BLT(config), self.objective.max_patches), initial


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusionBLT(_BLTRun):
    """Train a BLT-D (arXiv 2605.08044), which also predicts blocks of masked bytes."""

    model: BLTShape = BLTShape(decoder_input="embedding")
    objective: JointLoss = JointLoss()

    def prepare(self):
        config, initial = self._blt(decoder_input="embedding")
        longest = max(self.objective.corruption.block_sizes)
        config = dataclasses.replace(config, block_size=longest)
        fields = {x.name: getattr(self.objective, x.name) for x in dataclasses.fields(JointLoss)}
        return BLTD(BLT(config), **fields), initial


Kind = (
    Annotated[Entropy, tyro.conf.subcommand("entropy")]
    | Annotated[ByteTransformer, tyro.conf.subcommand("byte-lm")]
    | Annotated[HeadsOf, tyro.conf.subcommand("heads")]
    | Annotated[PlainBLT, tyro.conf.subcommand("blt")]
    | Annotated[BlockDiffusionBLT, tyro.conf.subcommand("blt-d")]
)
KINDS = {
    "entropy": Entropy, "byte-lm": ByteTransformer, "heads": HeadsOf, "blt": PlainBLT,
    "blt-d": BlockDiffusionBLT,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a model, or resume a training run."""

    kind: Annotated[Kind, tyro.conf.arg(name="")]

    def run(self) -> None:
        """Runs the command."""
        self.kind.start()


def default(args: Sequence[str]) -> Any:
    """The default values for tyro: those in the file given by `--config`, if there is one.

    Args:
      args: all arguments of the command line.

    Raises:
      TrainingError, ConfigError: the file cannot be used; the message is one line that says why.
    """
    path, out = _value_of("--config", args), _value_of("--out", args)
    if len(args) < 2 or args[0] != "train" or args[1] not in KINDS or not path:
        return tyro.MISSING_NONPROP
    kind = args[1]
    fields = plain.read_toml(pathlib.Path(path))
    if fields.pop("kind", kind) != kind:
        raise TrainingError(f"{path} is the config of another kind of model than {kind}")
    for name in fields.keys() & _NOT_RECORDED:
        raise TrainingError(f"{path}: {name} is a flag, not a field of the file")
    if not out:
        raise TrainingError("--out is required: the directory of the run")
    known = plain.to_fields(KINDS[kind](out=pathlib.Path(out)), by=_toml())
    return Train(plain.from_fields(KINDS[kind], plain.merge(known, fields), path, by=_toml()))


def to_fields(run: _Run) -> dict:
    """Converts a run to the fields that `config.toml` records."""
    kind = next(name for name, cls in KINDS.items() if type(run) is cls)
    fields = plain.to_fields(run, by=_toml())
    return {"kind": kind} | {name: x for name, x in fields.items() if name not in _NOT_RECORDED}


@functools.cache
def _toml() -> cattrs.Converter:
    """The converter for the config of a run; sources are written as on the command line."""
    made = plain.toml_converter()
    made.register_structure_hook(Source, lambda x, _: Source.parse(made.structure(x, str)))
    made.register_unstructure_hook(Source, str)
    made.register_structure_hook(pathlib.Path, lambda x, _: pathlib.Path(x))
    return made


def _started(config: BLTConfig, known: dict, seed: int) -> dict:
    """Initializes parameters at random, except for known ones.

    If the decoder embeds bytes itself but the known decoder read the encoder's states, its
    embedding is initialized with that of the encoder.
    """
    fresh = NextByte(BLT(config)).init
    params = jax.jit(fresh)(jax.random.key(seed)) | known
    if config.decoder_input == "embedding" and "embed" not in params["decoder"]:
        embed = params["encoder"]["embed"]
        params["decoder"] = params["decoder"] | {"embed": embed}
    return params


def _value_of(flag, args):
    """The value of a flag, after a space or an equals sign; empty if the flag is not given."""
    values = [
        following if argument == flag else argument.removeprefix(f"{flag}=")
        for argument, following in zip(args, [*args[1:], ""], strict=True)
        if argument == flag or argument.startswith(f"{flag}=")
    ]
    return values[-1] if values else ""
