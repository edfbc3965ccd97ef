"""What each kind of training run trains, and from which parameters it starts."""

import dataclasses
import functools
import re
from collections.abc import Callable
from typing import Any

import jax

from bytelax import checkpoints
from bytelax.checkpoints import architectures, config_fields
from bytelax.commands.json_line import json_line
from bytelax.commands.train import Train, to_fields
from bytelax.commands.train_flags import (
    BlockDiffusionBLT,
    BLTRun,
    ByteLMRun,
    ByteTransformer,
    Entropy,
    HeadsOf,
    PlainBLT,
    Run,
)
from bytelax.loading import model_directory
from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.pods import distributed, global_arrays, sharding
from bytelax.training import data, train_loop
from bytelax.training.configs import HeadsLoss
from bytelax.training.data import Split
from bytelax.training.head_objective import HeadLoss
from bytelax.training.metrics import BITS_PER_BYTE
from bytelax.training.objectives import BLTD, Distillation, NextByte, Objective
from bytelax.training.train_loop import TrainConfig

Initial = Callable[[], dict] | None  # returns initial parameters; None initializes at random


def run(flags: Train) -> None:
    """Trains, and prints the result."""
    start(flags.kind, to_fields(flags.kind))


def start(run: Run, record: dict) -> None:
    """Trains a kind of run, and prints the result.

    Args:
      run: the flags.
      record: the config of the run as nested dicts, to be written to its directory.
    """
    if re.match(r"[a-z0-9]+:/", str(run.out)):
        raise ValueError(f"--out takes a directory of a file system, mounted if need be: {run.out}")
    distributed.start(run.processes)
    splits: tuple[Split, ...] = ("train", "valid") if run.run.validate_every else ("train",)
    for split in splits:  # reports missing data now, not after many steps
        data.examples(run.data, split)
    objective, initial = prepare(run)
    settings = TrainConfig(optimizer=run.optimizer, mesh=run.mesh, run=run.run)

    def batches(split, start):
        rows = global_arrays.rows_here(sharding.make_mesh(run.mesh), run.data.batch)
        return data.batches(run.data, split=split, start=start, rows=rows)

    told = " and ".join(f"{data.size(run.data, x):,} bytes {_USES[x]}" for x in splits)
    result = train_loop.train(
        settings, objective, batches, run.out, initial=initial, record=record,
        about=f"data: {told}",
    )  # fmt: skip
    if not result.finished:
        raise KeyboardInterrupt
    if not distributed.is_first():
        return
    # On several processes the heads may lie on the devices of others.
    if isinstance(run, HeadsOf) and jax.process_count() == 1:
        checkpoints.write_heads(run.out / "heads", objective.module.config, result.params)
    if run.json:
        print(json_line({
            "out": str(run.out), "model": str(result.model), "step": result.step,
            "valid": result.valid,
        }))  # fmt: skip
        return
    count = sum(leaf.size for leaf in jax.tree.leaves(objective.model_params(result.params)))
    score = result.valid.get(BITS_PER_BYTE)
    known = "" if score is None else f", {score:.4f} bits per byte on the validation text"
    print(f"{result.model}: {count:,} parameters, {result.step} steps{known}")


_USES: dict[Split, str] = {"train": "to train on", "valid": "held out"}


@functools.singledispatch
def prepare(run: Run) -> tuple[Objective, Initial]:
    """Returns the objective of a run, and a function that returns its initial parameters."""
    raise NotImplementedError


@prepare.register
def _(run: Entropy):
    module, initial = _byte_lm(run)
    return NextByte(module), initial


@prepare.register
def _(run: ByteTransformer):
    module, initial = _byte_lm(run)
    if run.teacher is None:
        return NextByte(module), initial
    config, taught = checkpoints.read(model_directory(run.teacher), dtype="float32")
    teacher = architectures.module_of(config)

    def with_teacher():
        own = initial() if initial else NextByte(module).init(jax.random.key(run.run.seed))
        return own | {"teacher": taught}

    weight, patches = run.teacher_weight, run.teacher_max_patches
    return Distillation(module, teacher, weight, patches), with_teacher


@prepare.register
def _(run: HeadsOf):
    if run.init is None and not run.joint:
        raise ValueError("--init is required: the trained model that the heads are for; or --joint")
    found = _initial(run, ByteLMConfig | BLTConfig)
    config, params = found or (run.model, {})
    config = dataclasses.replace(config, heads=run.heads)
    loss = {field.name: getattr(run, field.name) for field in dataclasses.fields(HeadsLoss)}
    objective = HeadLoss(architectures.module_of(config), **loss)
    if found is None:
        return objective, None
    # Compiled, so that only the heads are made of a model that may be large.
    fresh = jax.jit(lambda key: objective.init(key)["heads"])
    return objective, lambda: params | {"heads": fresh(jax.random.key(run.run.seed))}


@prepare.register
def _(run: PlainBLT):
    config, initial = _blt(run, block_size=0)  # without its loss, block prediction degrades
    return NextByte(BLT(config), run.objective.max_patches), initial


@prepare.register
def _(run: BlockDiffusionBLT):
    config, initial = _blt(run, decoder_input="embedding")
    longest = max(run.objective.corruption.block_sizes)
    config = dataclasses.replace(config, block_size=longest)
    return BLTD(BLT(config), **vars(run.objective)), initial


def _byte_lm(run: ByteLMRun) -> tuple[ByteLM, Initial]:
    """A byte transformer, and a function that returns its initial parameters, or None."""
    found = _initial(run, ByteLMConfig)
    if found is None:
        return ByteLM(run.model), None
    config, params = found
    return ByteLM(config), lambda: params


def _initial(run, kind):
    """Config and float32 parameters of `--init`, or None. The config must be of class `kind`.

    Its heads are left out: they fit the weights as they are, and nothing would train them along.
    """
    if run.init is None:
        return None
    model = next(field for field in dataclasses.fields(run) if field.name == "model")
    if run.model != model.default:
        raise ValueError("--init brings a config of its own: leave --preset and --model... out")
    config, params = checkpoints.read(model_directory(run.init), dtype="float32")
    if not isinstance(config, kind):
        raise ValueError(f"--init {run.init} is a {config_fields.kind(config)}")
    trunk = {name: part for name, part in params.items() if name != "heads"}
    return dataclasses.replace(config, heads=None), trunk


def _blt(run: BLTRun, **changes: Any) -> tuple[BLTConfig, Initial]:
    """The config of a BLT, and a function that returns its initial parameters, or None.

    `changes` replace fields in the config of `--init`.
    """
    found = _initial(run, BLTConfig)
    if found is not None:
        if run.patcher is not None:
            raise ValueError("--init brings its own entropy model: leave --patcher out")
        config, params = found
        config = dataclasses.replace(config, **changes)
        return config, functools.partial(_started, config, params, run.run.seed)
    mode = run.model.patching.mode
    if mode != "entropy":
        if run.patcher is not None:
            raise ValueError(f"--model.patching.mode {mode} needs no entropy model: drop --patcher")
        return run.model.config(None), None
    if run.patcher is None:
        raise ValueError(
            "--patcher is required: an entropy model from `bytelax train entropy`, or a BLT; "
            "or set --model.patching.mode stride"
        )
    patcher, _, params = checkpoints.read_patcher(model_directory(run.patcher))
    config = run.model.config(patcher)
    return config, functools.partial(_started, config, {"patcher": params}, run.run.seed)


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
