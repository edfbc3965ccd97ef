"""`bytelax train entropy | byte-lm | heads | blt | blt-d`: train a model, or go on training it."""

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
from bytelax.training.head_objective import HeadLoss
from bytelax.training.metrics import BITS_PER_BYTE
from bytelax.training.objectives import BLTD, Distillation, NextByte, Objective
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_loop import RunConfig, TrainConfig
from bytelax.training.train_state import TrainingError

_NOT_RECORDED = {"out", "config", "json", "processes"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTShape:
    """A BLT but for its entropy model; see `bytelax.models.blt.BLTConfig`."""

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
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return BLTConfig(patcher=patcher, **fields)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NextByteLoss:
    """The next byte's loss on a BLT."""

    max_patches: int | None = None
    """Patches of a window that there is room for; None has room for one a byte, at a price."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointLoss:
    """Fast BLT's loss; see `bytelax.training.objectives.BLTD`."""

    corruption: CorruptionConfig = CorruptionConfig()
    mask_loss: Literal["sum", "mean"] = "sum"
    """"sum" is the paper's; "mean" divides by the cells, whatever the block size."""
    mask_weight: float = 1.0
    """Multiplies the loss of the masked bytes."""
    exit_layer: int | None = None
    """Decoder layer that the head learns to read too, for `blt-s` to draft with so many layers."""
    exit_weight: float = 0.2
    """Multiplies the loss at that layer."""
    max_patches: int | None = None
    """Patches of a window that there is room for; None has room for one a byte, at a price."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Run:
    """What all kinds of model are trained with."""

    out: pathlib.Path
    """Directory of the run; where it holds a checkpoint of the same config, the run goes on."""
    config: pathlib.Path | None = None
    """A TOML file of the fields below, as `OUT/config.toml` holds them; flags overrule it."""
    json: bool = False
    """Print what the run came to as JSON."""
    init: str | None = None
    """Start from this model, which also decides the config of the new one."""
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: MeshFlag = MeshConfig()
    """Devices that the work is spread over: data, fsdp and tensor; an axis left out has one."""
    run: RunConfig = RunConfig()
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()

    def start(self) -> None:
        """Trains."""
        distributed.start(self.processes)
        if self.run.validate_every:  # or its data would be found missing many steps later
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
        """The objective, and where the parameters come from."""
        raise NotImplementedError

    def _batches(self, split, start):
        rows = global_arrays.rows_here(sharding.make_mesh(self.mesh), self.data.batch)
        return data.batches(self.data, split=split, start=start, rows=rows)

    def _initial(self, kind):
        """Config and parameters of `init`, which must be of a kind; None without it."""
        if self.init is None:
            return None
        default = next(x.default for x in dataclasses.fields(self) if x.name == "model")
        if self.model != default:
            raise ValueError("--init brings a config of its own: leave the --model flags out")
        config, params = checkpoints.read(model_directory(self.init), dtype="float32")
        if not isinstance(config, kind):
            raise ValueError(f"--init {self.init} is a {config_fields.kind(config)}")
        return config, params


# No kind is a subclass of another: tyro would take the one's defaults for the other's.
@dataclasses.dataclass(frozen=True, kw_only=True)
class _ByteLMRun(_Run):
    model: ByteLMConfig

    def prepare(self):
        found = self._initial(ByteLMConfig)
        config, params = found or (self.model, None)
        return NextByte(ByteLM(config)), None if found is None else lambda: params


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteTransformer(_ByteLMRun):
    """Train a byte transformer, by itself or after a teacher."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    teacher: str | None = None
    """A model whose laws it learns too, as a draft model must."""
    teacher_weight: float = 0.5
    """Share of the loss that is the divergence from the teacher."""
    teacher_max_patches: int | None = None
    """Patches of a window that a teacher has room for that is a BLT; None: one a byte."""

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
    """Train the heads with which a byte transformer drafts for itself; the result holds both."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=384, layers=6))
    heads: HeadsConfig = HeadsConfig()
    loss_of: Literal["kl", "total-variation", "cross-entropy"] = "kl"
    """What the heads minimise: a distance to the trunk's laws, or the text's own bytes."""
    joint: bool = False
    """The trunk learns too; without --init, from scratch."""
    head_weight: float = 1.0
    """Multiplies the heads' loss beside the trunk's own, with --joint."""
    own_outputs: int = 4
    """Steps of the draft layer in training, all but the first on its own outputs."""

    def prepare(self):
        if self.init is None and not self.joint:
            raise ValueError("heads need --init, the trained model they are for (or --joint)")
        objective, initial = super().prepare()
        config = dataclasses.replace(objective.module.config, heads=self.heads)
        objective = HeadLoss(
            ByteLM(config), self.loss_of, self.joint, self.head_weight, self.own_outputs
        )
        if initial is None:
            return objective, None
        return (
            objective,
            lambda: (
                objective.init(jax.random.key(self.run.seed))
                | {name: part for name, part in initial().items() if name != "heads"}
            ),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entropy(_ByteLMRun):
    """Train an entropy model: a small byte transformer that cuts text into patches for a BLT."""

    model: ByteLMConfig = ByteLMConfig(trunk=TransformerConfig(dim=128, layers=3, window=512))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _BLTRun(_Run):
    patcher: str | None = None
    """Directory of the entropy model. `bytelax calibrate` finds `--model.patching.threshold`."""
    model: BLTShape

    def _blt(self, **changes):
        """The config, with changes to that of `init`, and the parameters to start from."""
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
        patcher, params = read_patcher(self.patcher)
        config = self.model.config(patcher)
        return config, functools.partial(_started, config, {"patcher": params}, self.run.seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainBLT(_BLTRun):
    """Train a Byte Latent Transformer around a trained entropy model, which stays as it is."""

    model: BLTShape = BLTShape()
    objective: NextByteLoss = NextByteLoss()

    def prepare(self):
        config, initial = self._blt(block_size=0)  # what is not trained on is forgotten
        return NextByte(BLT(config), self.objective.max_patches), initial


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusionBLT(_BLTRun):
    """Train a BLT-D (arXiv 2605.08044), which also fills in blocks of masked bytes."""

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
    """Train a model, or go on training it."""

    kind: Annotated[Kind, tyro.conf.arg(name="")]

    def run(self) -> None:
        self.kind.start()


def default(args: Sequence[str]) -> Any:
    """What tyro fills in where flags say nothing: the file named by `--config`, if there is one.

    Args:
      args: of the whole command line.

    Raises:
      TrainingError, ConfigError: the file cannot be used. One line says which field and why.
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
    """The config of a run as a file holds it."""
    kind = next(name for name, cls in KINDS.items() if type(run) is cls)
    fields = plain.to_fields(run, by=_toml())
    return {"kind": kind} | {name: x for name, x in fields.items() if name not in _NOT_RECORDED}


@functools.cache
def _toml() -> cattrs.Converter:
    """How a run's config is spelt: sources as on the command line."""
    made = plain.toml_converter()
    made.register_structure_hook(Source, lambda x, _: Source.parse(made.structure(x, str)))
    made.register_unstructure_hook(Source, str)
    made.register_structure_hook(pathlib.Path, lambda x, _: pathlib.Path(x))
    return made


def read_patcher(location: str) -> tuple[ByteLMConfig, dict]:
    """Config and float32 parameters of an entropy model: a byte transformer, or that of a BLT."""
    config, params = checkpoints.read(model_directory(location), dtype="float32")
    if isinstance(config, ByteLMConfig):
        return config, params
    if config.patcher is None:
        raise ValueError(f"--patcher {location} is a BLT without an entropy model")
    return config.patcher, params["patcher"]


def model_directory(location: str) -> str:
    """The model in the directory of a run, or the location itself."""
    directory = pathlib.Path(location)
    if (directory / "config.toml").exists() and not (directory / "config.json").exists():
        if not (directory / "model").exists():
            raise ValueError(f"{location} holds a run that has not finished: it has no model yet")
        return str(directory / "model")
    return location


def _started(config: BLTConfig, known: dict, seed: int) -> dict:
    """Random parameters but for those that are known.

    A decoder that reads bytes itself, where the known one read the encoder's states, starts from
    the encoder's embedding of bytes.
    """
    fresh = NextByte(BLT(config)).init
    params = jax.jit(fresh)(jax.random.key(seed)) | known
    if config.decoder_input == "embedding" and "embed" not in params["decoder"]:
        embed = params["encoder"]["embed"]
        params["decoder"] = params["decoder"] | {"embed": embed}
    return params


def _value_of(flag, args):
    """What follows a flag, behind a space or an equals sign; empty without the flag."""
    values = [
        following if argument == flag else argument.removeprefix(f"{flag}=")
        for argument, following in zip(args, [*args[1:], ""], strict=True)
        if argument == flag or argument.startswith(f"{flag}=")
    ]
    return values[-1] if values else ""
