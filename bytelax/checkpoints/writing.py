"""Writes checkpoints in the layouts of bytelax and of transformers."""

import os
import pathlib
import shutil
import uuid
from collections.abc import Mapping
from typing import Literal, get_args

import jax

from bytelax.checkpoints import huggingface
from bytelax.checkpoints.config import CheckpointError
from bytelax.models.configs import ModelConfig
from bytelax.pods import distributed

Layout = Literal["orbax", "huggingface"]  # Meta's is read alone
_WRITTEN = {"config.json", "model.safetensors", "parameters"}  # at the top of a directory


def write(
    directory: str | os.PathLike,
    config: ModelConfig,
    params: Mapping,
    *,
    layout: Layout,
    overwrite: bool = False,
    int8: bool = False,
) -> None:
    """Writes a model to a new directory, atomically.

    Args:
      directory: directory to write; it must not exist, or be empty, unless `overwrite` is set.
      config: config of the model.
      params: parameters of the model, written in their own dtypes. Those of an entropy
        model that `config.patching.mode` does not use are left out.
      layout: "orbax" for bytelax's own layout. "huggingface" writes any model that bytelax can run;
        see `check_transformers` for whether transformers can run it too.
      overwrite: replace a model that was written to the directory before, once the new one is
        complete.
      int8: round the matrices of the layers to int8, with a scale for each output: half the size of
        bfloat16. It reads as float32; only bytelax reads it, and "huggingface" is the
        layout that has it.

    Raises:
      CheckpointError: the directory is not empty, or holds other files than those of a model;
        several processes write a layout other than "orbax", the parameters do not match the config,
        or the disk is full.
    """
    if layout not in get_args(Layout):
        raise CheckpointError(f"layout {layout!r} is not one of {', '.join(get_args(Layout))}")
    if int8 and layout != "huggingface":
        raise CheckpointError(f"the layout {layout} holds no int8: write huggingface")
    _check_free(pathlib.Path(directory), overwrite)
    target = pathlib.Path(directory).resolve()
    settled = config.without_idle_patcher()
    if settled.patcher is None:
        params = {name: part for name, part in params.items() if name != "patcher"}
    if layout != "orbax" and jax.process_count() > 1:
        raise CheckpointError(
            f"one process writes the layout {layout}: write orbax, and convert it"
        )
    token = distributed.of_first(uuid.uuid4().int % (1 << 32))
    temporary = target.with_name(f".{target.name}.{token:08x}.partial")
    first = distributed.is_first()
    if first:
        temporary.mkdir(parents=True)
    distributed.wait("begin to write a model")
    try:
        if layout == "orbax":
            from bytelax.checkpoints import orbax  # takes as long to import as a model to load

            orbax.write(temporary, settled, params)
        else:
            huggingface.write(temporary, settled, params, int8=int8)
        distributed.wait("a model is written")
        if first:
            _move(temporary, target)
    except BaseException:
        if first:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    distributed.wait("a model is in its place")


def _check_free(directory: pathlib.Path, overwrite: bool) -> None:
    """Raises CheckpointError unless a model may be written to this path."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is a file; choose another name")
    found = sorted(path.name for path in directory.iterdir())
    if found and not overwrite:
        raise CheckpointError(
            f"{directory} is not empty; choose another directory, or overwrite the model in it "
            "(overwrite=True, --overwrite)"
        )
    for name in found:
        if name not in _WRITTEN:
            raise CheckpointError(
                f"{directory} holds {name}, which is not part of a model; choose another directory"
            )


def _move(temporary: pathlib.Path, target: pathlib.Path) -> None:
    """Renames a directory, in place of another one that is removed, or stays if this fails."""
    before = temporary.with_suffix(".before")
    if target.exists():
        target.rename(before)
    try:
        temporary.rename(target)
    except BaseException:
        if before.exists():
            before.rename(target)
        raise
    shutil.rmtree(before, ignore_errors=True)
