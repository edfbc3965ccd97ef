"""`bytelax train entropy | byte-lm | heads | blt | blt-d`: trains a model, or resumes a run.

Each kind of run is a class, whose fields are its flags and the fields of its `config.toml`, and
whose `prepare` says what it trains.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import tyro

from bytelax.commands import console, flags
from bytelax.models import presets
from bytelax.models.configs import (
    BLTConfig,
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

# What `prepare` returns: a `training.objectives.Objective`, and its known parameters, as
# `training.initialise` takes them.
Prepared = tuple[Any, dict]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Run:
    """Options that all kinds of training runs share."""

    out: pathlib.Path
    """Directory of the run. If it holds a checkpoint of the same config, the run is resumed."""
    preset: Literal["laptop", "100m", "1b"] | None = None
    """Sizes of model, batch and run to start from, without a model for heads; every flag below
    replaces one of them."""
    config: pathlib.Path | None = None
    """A TOML file with the fields below, such as `OUT/config.toml`; flags take precedence."""
    json: bool = False
    """Print the result as JSON."""
    init: str | None = None
    """A model to start from, with its config: a directory, a training run, a bundled model."""
    data: DataConfig = DataConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    mesh: flags.Mesh = MeshConfig()
    """Mesh of devices, with the axes data, fsdp and tensor; omitted axes have size 1."""
    run: RunConfig = RunConfig()
    processes: Annotated[Processes, tyro.conf.arg(name="")] = Processes()

    def prepare(self) -> Prepared:
        """Returns what is trained, and which of its parameters are known."""
        raise NotImplementedError


# No kind is a subclass of another, because tyro would take the defaults of one for the other's.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteLMRun(Run):
    """Options of the kinds whose model is a byte transformer."""

    model: tyro.conf.AvoidSubcommands[ByteLMConfig]

    def _byte_lm(self):
        """A byte transformer, and its known parameters."""
        from bytelax.models.byte_lm import ByteLM

        config, params = _initial(self, "byte-lm") or (self.model, {})
        return ByteLM(config), params


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entropy(ByteLMRun):
    """Train an entropy model: a small byte transformer that divides text into patches for a BLT."""

    model: tyro.conf.AvoidSubcommands[ByteLMConfig] = ByteLMConfig(
        trunk=TransformerConfig(dim=128, layers=3, window=512)
    )

    def prepare(self) -> Prepared:
        """Returns the next-byte loss of the model."""
        from bytelax.training.objectives import NextByte

        module, known = self._byte_lm()
        return NextByte(module), known


@dataclasses.dataclass(frozen=True, kw_only=True)
class ByteTransformer(ByteLMRun):
    """Train a byte transformer, alone or by distillation from a teacher."""

    model: tyro.conf.AvoidSubcommands[ByteLMConfig] = ByteLMConfig(
        trunk=TransformerConfig(dim=384, layers=6)
    )
    teacher: str | None = None
    """A model to distil from, as in --init; useful for training a draft model."""
    teacher_weight: float = 0.5
    """Weight of the divergence from the teacher; the next-byte loss has the rest."""
    teacher_max_patches: int | None = None
    """Capacity for patches in a window, if the teacher is a BLT; None allows one per byte."""

    def prepare(self) -> Prepared:
        """Returns the next-byte loss of the model, or its distillation."""
        from bytelax import architectures, checkpoints
        from bytelax.compiling import random_key
        from bytelax.loading import model_directory
        from bytelax.training.objectives import Distillation, NextByte

        module, known = self._byte_lm()
        if self.teacher is None:
            return NextByte(module), known
        # Not compiled: that changes the last bits, and so those of a run.
        known = known or NextByte(module).init(random_key(self.run.seed))
        config, taught = checkpoints.read(model_directory(self.teacher), dtype="float32")
        teacher = architectures.module_of(config)
        weight, patches = self.teacher_weight, self.teacher_max_patches
        return Distillation(module, teacher, weight, patches), known | {"teacher": taught}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heads(HeadsLoss, Run):
    """Train the heads with which a byte transformer or a BLT drafts for itself.

    The model is frozen. The result holds both, and `OUT/heads` the heads alone, for
    `load(..., heads=)`.
    """

    heads: HeadsConfig = HeadsConfig()
    data: DataConfig = DataConfig(window=256, batch=16)  # 1000 such steps take minutes on a laptop

    def prepare(self) -> Prepared:
        """Returns the loss of the heads."""
        from bytelax import architectures
        from bytelax.training.head_objective import HeadLoss

        found = _initial(self, "byte-lm", "blt")
        if found is None:
            raise ValueError("--init is required: the trained model that the heads are for")
        config, known = found
        config = dataclasses.replace(config, heads=self.heads)
        loss = {field.name: vars(self)[field.name] for field in dataclasses.fields(HeadsLoss)}
        return HeadLoss(architectures.module_of(config), **loss), known


_SIZES = BLTSizes(
    encoder=TransformerConfig(dim=256, layers=1, window=512),
    global_transformer=TransformerConfig(dim=512, layers=8),
    decoder=TransformerConfig(dim=256, layers=3, window=512),
    patching=PatchingConfig(),
    hashing=HashConfig(vocab=20_011),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BLTRun(Run):
    """Options of the kinds whose model is a BLT."""

    patcher: str | None = None
    """An entropy model, or a BLT that has one, as in --init. `bytelax calibrate` finds the
    threshold to give as --model.patching.threshold."""
    model: BLTSizes

    def _blt(self, **changes):
        """The config of a BLT, and its known parameters.

        `changes` replace fields in the config of `--init`.
        """
        from bytelax import checkpoints
        from bytelax.loading import model_directory

        found = _initial(self, "blt")
        if found is not None:
            if self.patcher is not None:
                raise ValueError("--init brings its own entropy model: leave --patcher out")
            config, params = found
            return dataclasses.replace(config, **changes), params
        mode = self.model.patching.mode
        if mode != "entropy":
            if self.patcher is not None:
                raise ValueError(
                    f"--model.patching.mode {mode} needs no entropy model: drop --patcher"
                )
            return self.model.config(None), {}
        if self.patcher is None:
            raise ValueError(
                "--patcher is required: an entropy model from `bytelax train entropy`, or a BLT; "
                "or set --model.patching.mode stride"
            )
        patcher, _, params = checkpoints.read_patcher(model_directory(self.patcher))
        return self.model.config(patcher), {"patcher": params}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlainBLT(BLTRun):
    """Train a Byte Latent Transformer with a trained entropy model, which stays fixed."""

    model: BLTSizes = _SIZES
    objective: NextByteLoss = NextByteLoss()

    def prepare(self) -> Prepared:
        """Returns the next-byte loss of the model."""
        from bytelax.models.blt import BLT
        from bytelax.training.objectives import NextByte

        config, known = self._blt(block_size=0)  # without its loss, block prediction degrades
        return NextByte(BLT(config), **vars(self.objective)), known


@dataclasses.dataclass(frozen=True, kw_only=True)
class BlockDiffusionBLT(BLTRun):
    """Train a BLT-D (arXiv 2605.08044), which also predicts blocks of masked bytes."""

    model: BLTSizes = dataclasses.replace(_SIZES, decoder_input="embedding")
    objective: JointLoss = JointLoss()

    def prepare(self) -> Prepared:
        """Returns the joint loss of the model."""
        from bytelax.models.blt import BLT
        from bytelax.training.objectives import BLTD

        config, known = self._blt(decoder_input="embedding")
        longest = max(self.objective.corruption.block_sizes)
        config = dataclasses.replace(config, block_size=longest)
        return BLTD(BLT(config), **vars(self.objective)), known


KINDS: dict[str, type[Run]] = {
    "entropy": Entropy,
    "byte-lm": ByteTransformer,
    "heads": Heads,
    "blt": PlainBLT,
    "blt-d": BlockDiffusionBLT,
}


def _initial(run, *kinds):
    """Config and float32 parameters of `--init`, a model of one of these kinds; or None.

    Its heads are left out: they fit the weights as they are, and nothing would train them along.
    """
    from bytelax import architectures, checkpoints
    from bytelax.loading import model_directory

    if run.init is None:
        return None
    model = {field.name: field.default for field in dataclasses.fields(run)}.get("model")
    if model is not None and run.model != model:
        raise ValueError("--init brings a config of its own: leave --preset and --model... out")
    config, params = checkpoints.read(model_directory(run.init), dtype="float32")
    kind = architectures.of(config).name
    if kind not in kinds:
        raise ValueError(f"--init {run.init} is a {kind}")
    trunk = {name: part for name, part in params.items() if name != "heads"}
    return dataclasses.replace(config, heads=None), trunk


def run(command: Run) -> None:
    """Trains, and prints the result."""
    import jax

    from bytelax import checkpoints
    from bytelax.pods import distributed, global_arrays, sharding
    from bytelax.training import data, runs, train_loop
    from bytelax.training.metrics import BITS_PER_BYTE

    if re.match(r"[a-z0-9]+:/", str(command.out)):  # a bucket
        raise ValueError(f"--out takes a directory of a file system, not {command.out}")
    distributed.start(command.processes)
    for split in ("train", "valid") if command.run.validate_every else ("train",):
        data.examples(command.data, split)  # reports missing data now, not after many steps
    objective, known = command.prepare()
    train_loop.check_window(objective, command.data.window)
    settings = runs.TrainConfig(optimizer=command.optimizer, mesh=command.mesh, run=command.run)
    initial = functools.partial(train_loop.initialise, objective, known, seed=command.run.seed)

    def batches(split, step):
        rows = global_arrays.rows_here(sharding.make_mesh(command.mesh), command.data.batch)
        return data.batches(command.data, split=split, start=step * command.data.batch, rows=rows)

    result = runs.train(
        settings, objective, batches, command.out,
        initial=initial if known else None, record=to_fields(command),
    )  # fmt: skip
    if not result.finished:
        raise KeyboardInterrupt
    if not distributed.is_first():
        return
    # On several processes the heads may lie on the devices of others.
    if isinstance(command, Heads) and jax.process_count() == 1:
        checkpoints.write_heads(command.out / "heads", objective.module.config, result.params)
    model = command.out / "model"
    if command.json:
        fields = {"out": str(command.out), "model": str(model)}
        print(console.json_line(fields | {"step": result.step, "valid": result.valid}))
        return
    count = sum(leaf.size for leaf in jax.tree.leaves(objective.model_params(result.params)))
    score = result.valid.get(BITS_PER_BYTE)
    bits = "" if score is None else f", {score:.4f} bits per byte on the validation text"
    print(f"{model}: {count:,} parameters, {result.step} steps{bits}")


# Presets: sizes of a run, as default values of its flags

_RUNS: dict[str, dict[str, Any]] = {
    "laptop": {
        "data": DataConfig(window=256, batch=8),
        "optimizer": OptimizerConfig(
            name="muon", steps=600, peak=3e-3, muon_peak=0.012, weight_decay=0.05
        ),
        "run": RunConfig(validate_every=100),
    },
    "100m": {
        "data": DataConfig(window=2048, batch=128),
        "optimizer": OptimizerConfig(steps=20_000, warmup=1000),
        "run": RunConfig(dtype="bfloat16", remat=True, scan=True),
    },
    "1b": {
        "data": DataConfig(window=4096, batch=512),
        "optimizer": OptimizerConfig(steps=50_000, warmup=2000),
        "run": RunConfig(dtype="bfloat16", remat=True, scan=True),
    },
}
# Of a byte transformer, an entropy model and a BLT. The 1B BLT as released has the entropy model of
# 100M parameters.
_MODELS = {
    "laptop": (presets.BYTE_LM_LAPTOP, presets.ENTROPY_LAPTOP, presets.BLT_LAPTOP),
    "100m": (presets.BYTE_LM_85M, presets.ENTROPY_100M, presets.BLT_100M),
    "1b": (presets.BYTE_LM_800M, presets.ENTROPY_100M, presets.BLT_1B),
}


def preset_of(kind: str, preset: str) -> dict[str, Any]:
    """Returns the fields of a kind of run that a preset sets; none if there is no such preset."""
    if preset not in _RUNS:  # which is reported with the other flags
        return {}
    run = {"preset": preset} | _RUNS[preset]
    if kind == "heads":  # whose model is that of --init, and whose rates are not those of a model
        length = {name: vars(run["optimizer"])[name] for name in ("steps", "warmup")}
        return run | {"optimizer": OptimizerConfig(**length)}
    byte_lm, entropy_model, blt = _MODELS[preset]
    if kind in ("byte-lm", "entropy"):
        return run | {"model": byte_lm if kind == "byte-lm" else entropy_model}
    run |= {"model": _sizes(blt, joint=kind == "blt-d")}
    if preset == "laptop":  # whose threshold is that of the bundled entropy model
        run |= {"patcher": "tiny"}
    return run


def _sizes(config: BLTConfig, *, joint: bool) -> BLTSizes:
    fields = {field.name: vars(config)[field.name] for field in dataclasses.fields(BLTSizes)}
    sizes = BLTSizes(**fields)
    return dataclasses.replace(sizes, decoder_input="embedding") if joint else sizes


# The file of a run

NOT_RECORDED = {"out", "config", "preset", "json", "processes"}


def default(kind: str, args: Sequence[str]) -> Any:
    """Returns the defaults of a kind of run for tyro: those of `--preset` and of `--config`.

    Raises:
      ValueError: the file cannot be used; the message is one line that says why.
    """
    path, preset, out = (flags.value_of(flag, args) for flag in ("--config", "--preset", "--out"))
    if not (path or preset):
        return tyro.MISSING_NONPROP
    if not out and not {"-h", "--help"} & set(args):
        raise ValueError("--out is required: the directory of the run")
    known = KINDS[kind](out=pathlib.Path(out or "OUT"), **preset_of(kind, preset))
    if not path:
        return known
    from bytelax.checkpoints import config as plain

    fields = plain.read_toml(pathlib.Path(path))
    if fields.pop("kind", kind) != kind or fields.keys() & NOT_RECORDED:
        raise ValueError(f"{path} is not the config of a run of the kind {kind}")
    return plain.from_fields(KINDS[kind], plain.merge(plain.to_fields(known), fields), path)


def to_fields(run: Run) -> dict:
    """Converts a run to the fields that `config.toml` records."""
    from bytelax.checkpoints import config as plain

    kind = next(name for name, cls in KINDS.items() if type(run) is cls)
    fields = {"kind": kind} | plain.to_fields(run)
    # Recorded as a number, because the default depends on the number of steps, which may change.
    fields["optimizer"]["warmup"] = run.optimizer.warmup_steps
    return {name: value for name, value in fields.items() if name not in NOT_RECORDED}
