"""Checkpoints: our own layout (Orbax), that of transformers, and that of Meta's release."""

import contextlib
import os
import pathlib
import re
import shutil
import types
import uuid
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from bytelax import config as plain
from bytelax.checkpoints import config_fields, huggingface, meta, orbax
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.huggingface import check_transformers
from bytelax.checkpoints.layout import Config, Shardings
from bytelax.pods import distributed

__all__ = ["CheckpointError", "Layout", "check_transformers", "read", "read_config", "write"]

Layout = Literal["orbax", "huggingface", "meta"]
_LAYOUTS = {"orbax": orbax, "huggingface": huggingface, "meta": meta}
_DTYPES = ("float32", "bfloat16", "float16")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.pth", "parameters/*"]


def read(
    location: str | os.PathLike,
    *,
    dtype: str | None = None,
    shardings: Shardings | None = None,
    **overrides: Any,
) -> tuple[Config, dict]:
    """Reads a model, parameter by parameter: the host never holds much more than the result.

    Args:
      location: a directory in any of the three layouts, or a name `org/model` on the hub.
      dtype: "float32", "bfloat16" or "float16" for every parameter but the patcher's, which are
        always float32: its entropies meet a hard threshold. None keeps what is stored.
      shardings: from the config and the tree of `jax.ShapeDtypeStruct`s to the tree of shardings
        to put the parameters in; by default they go to the default device.
      **overrides: config fields to replace, some of which a file cannot hold: monotonicity,
        patching_threshold, patching_threshold_add, patching_mode, patching_stride,
        max_patch_length, mask_documents, max_bytes.

    Returns:
      A `BLTConfig` or `ByteLMConfig`, and the parameters for `module.apply({"params": ...})`.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run; one line says why.
    """
    if dtype is not None and dtype not in _DTYPES:
        raise CheckpointError(f"dtype {dtype!r} is not one of {', '.join(_DTYPES)}")
    found = _open(location, overrides)
    read_parameters = found.layout.read_parameters
    return found.config, read_parameters(
        found.config,
        found.stored,
        dtype=None if dtype is None else jnp.dtype(dtype),
        shardings=shardings,
    )


def read_config(location: str | os.PathLike, **overrides: Any) -> Config:
    """The config of a model, its parameters only measured: arguments and errors as in `read`."""
    return _open(location, overrides).config


def write(directory: str | os.PathLike, config: Config, params: Mapping, *, layout: Layout) -> None:
    """Writes a model into a new directory, whole or not at all.

    Args:
      directory: where; it must not exist, or be empty.
      config: the model.
      params: its parameters, written in the dtypes they have. Those of a patcher that
        `config.patching.mode` never asks are left out.
      layout: "huggingface" writes whatever we can run; see `check_transformers` for whether
        transformers can run it too. "meta" refuses what Meta's code cannot run.

    Raises:
      CheckpointError: the directory is not empty, several processes write another layout than
        "orbax", the parameters are not those of the config, or
        the layout cannot hold the model.
    """
    if layout not in _LAYOUTS:
        raise CheckpointError(f"layout {layout!r} is not one of {', '.join(_LAYOUTS)}")
    target = pathlib.Path(directory).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CheckpointError(f"{directory} is not empty; choose another directory or remove it")
    settled = config_fields.without_idle_patcher(config)
    if getattr(settled, "patcher", True) is None:
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
        with _as_checkpoint_error():
            _LAYOUTS[layout].write(temporary, settled, params)
        distributed.wait("a model is written")
        if first and target.exists():
            target.rmdir()
        if first:
            temporary.rename(target)
    except BaseException:
        if first:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    distributed.wait("a model is in its place")


def detect(directory: pathlib.Path) -> Layout:
    """Which layout a directory is in.

    Raises:
      CheckpointError: none of the three.
    """
    if not (directory / "config.json").exists():
        if (directory / "params.json").exists():
            return "meta"
        empty = "is empty" if not any(directory.iterdir()) else "has no config.json or params.json"
        raise CheckpointError(f"{directory} {empty}; give the directory of a checkpoint")
    fields = plain.read_json(directory / "config.json")
    if "args" in fields:
        return "meta"
    return "orbax" if fields.get("format") == "bytelax" else "huggingface"


class _Opened(NamedTuple):
    """A checkpoint whose config is known to be that of its parameters."""

    layout: types.ModuleType
    config: Config
    stored: Any  # shapes and dtypes, and how to read what has them


def _open(location, overrides):
    directory = _directory(location)
    with _as_checkpoint_error():
        module = _LAYOUTS[detect(directory)]
        config, stored = module.read_config(directory)
        config = config_fields.override(config, overrides)
        module.check(config, stored, str(directory))
    return _Opened(module, config, stored)


@contextlib.contextmanager
def _as_checkpoint_error():
    try:
        yield
    except plain.ConfigError as error:
        raise CheckpointError(str(error)) from None


def _directory(location):
    if not str(location):  # pathlib takes it for the current directory
        raise CheckpointError("the name of the model is empty; give a directory or a hub id")
    directory = pathlib.Path(location)
    if directory.is_dir():
        return directory
    if directory.exists():
        raise CheckpointError(f"{location} is a file; give the directory it is in")
    if not isinstance(location, str) or not _HUB_NAME.fullmatch(location):
        raise CheckpointError(f"there is no directory {location}")
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"there is no directory {location}; pip install 'bytelax[hub]' to look on the hub"
        ) from None
    try:
        return pathlib.Path(huggingface_hub.snapshot_download(location, allow_patterns=_HUB_FILES))
    except Exception as error:  # requests, hub and validation errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"there is no directory {location}, and the hub did not give it: {reason}"
        ) from None
