"""Reads and writes checkpoints in the layouts of bytelax and transformers, and reads Meta's."""

import importlib
import math
import os
import pathlib
import re
import shutil
import types
import uuid
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from bytelax_kernels import native
from jax.typing import DTypeLike

from bytelax.checkpoints import architectures, byte_ids
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.heads import read_heads, write_heads
from bytelax.checkpoints.huggingface import check_transformers
from bytelax.checkpoints.layout import PATCHER, Shardings, network_kernels, quantized
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import Config
from bytelax.models.patching import PatchingConfig
from bytelax.pods import distributed

__all__ = [
    "CheckpointError",
    "Layout",
    "check_quantize",
    "check_transformers",
    "quantized",
    "read",
    "read_config",
    "read_heads",
    "read_patcher",
    "write",
    "write_heads",
]

Layout = Literal["orbax", "huggingface"]  # Meta's is read alone
_WRITTEN = {"config.json", "model.safetensors", "parameters"}  # at the top of a directory
_DTYPES = ("float32", "bfloat16", "float16")
_NARROW_FROM = 20_000_000  # weights; kernels that widen bfloat16 read fewer faster in float32
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES = ["*.json", "*.safetensors", "*.pth", "parameters/*"]


def read(
    location: str | os.PathLike,
    *,
    dtype: DTypeLike | None = None,
    shardings: Shardings | None = None,
    quantize: str | None = None,
    **overrides: Any,
) -> tuple[Config, dict]:
    """Reads the config and the parameters of a model from a directory or from the hub.

    The layouts of transformers and Meta are read parameter by parameter, so that the host never
    holds much more than the result. Orbax may take up to twice as much on a CPU.

    Args:
      location: a directory in any of the three layouts, or a name `org/model` on the hub.
      dtype: "float32", "bfloat16", "float16" or a dtype of this name, for all parameters except the
        patcher's, which are always float32, because its entropies are compared with a threshold.
        None keeps the stored dtypes. "auto" is bfloat16 where that is faster: on accelerators, and
        on a CPU with compiled kernels if it has products of bfloat16 or if the networks, without
        their embeddings, have 20M weights. Elsewhere it is float32.
      shardings: a function of the config and the tree of `jax.ShapeDtypeStruct`s that returns the
        tree of shardings of the parameters, or None. It is called before any parameter is read. By
        default parameters go to the default device.
      quantize: "int8" for kernels and the hash table in int8, on one device; the entropy model and
        prediction heads stay as they are. Orbax reads all of them first.
      **overrides: config fields to replace, some of which a file cannot hold: monotonicity,
        patching_threshold, patching_threshold_add, patching_mode, patching_stride,
        max_patch_length, mask_documents, max_bytes. Three more say which ids are bytes in a model
        of transformers that bytelax did not write: bytes_at, bos, eos; see `byte_ids.find`.

    Returns:
      A `BLTConfig` or `ByteLMConfig`, and the parameters for `module.apply({"params": ...})`.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run, or weights that are NaN or
        infinite; the message is one line that says why.
    """
    automatic = isinstance(dtype, str) and dtype == "auto"
    wanted = None if dtype is None or automatic else _dtype(dtype)
    if quantize is not None:
        check_quantize(quantize)
    found = _overridden(location, overrides)
    if automatic:
        wanted = jnp.dtype(_fastest_dtype(found.config))
    read_parameters = found.layout.read_parameters
    return found.config, read_parameters(
        found.config,
        found.stored,
        found.source,
        dtype=wanted,
        shardings=shardings,
        quantize=quantize is not None,
    )


def _dtype(dtype):
    try:
        found = jnp.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.name not in _DTYPES:
        raise CheckpointError(f"dtype {dtype!r} is not one of {', '.join((*_DTYPES, 'auto'))}")
    return found


def _fastest_dtype(config):
    if jax.default_backend() != "cpu" or native.multiply_bfloat16():
        return "bfloat16"
    weights = sum(math.prod(x.shape) for x in network_kernels(config).values())
    return "bfloat16" if native.available() and weights >= _NARROW_FROM else "float32"


def check_quantize(kind: object) -> None:
    """Raises CheckpointError if weights cannot be quantized to this."""
    if kind != "int8":
        raise CheckpointError(f"quantize {kind!r} is not int8, the only kind there is")


def read_config(location: str | os.PathLike, **overrides: Any) -> Config:
    """Reads the config of a model, and checks it against the shapes of the stored parameters.

    Arguments and errors are those of `read`.
    """
    return _overridden(location, overrides).config


def read_patcher(
    location: str | os.PathLike, **overrides: Any
) -> tuple[ByteLMConfig, PatchingConfig, dict]:
    """Reads an entropy model: a byte transformer, or only the patcher's tensors of a BLT.

    Args:
      location: as in `read`.
      **overrides: as in `read`. Those of patching apply to a byte transformer too, whose files
        hold no patching rule.

    Returns:
      The config of the entropy model, the patching rule, and the parameters in float32.

    Raises:
      CheckpointError: as in `read`, or the BLT has no entropy model.
    """
    found, overrides = _open(location, overrides)
    config, rule = architectures.patcher_of(found.config, overrides)
    found.layout.check(config, found.stored, found.source)
    under = PATCHER if isinstance(config, BLTConfig) else ""
    params = found.layout.read_parameters(
        config, found.stored, found.source, dtype=jnp.dtype("float32"), under=under
    )
    if not isinstance(config, BLTConfig):
        return config, rule, params
    assert config.patcher is not None  # `patcher_of` refuses such a BLT
    return config.patcher, rule, params["patcher"]


def write(
    directory: str | os.PathLike,
    config: Config,
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
      params: parameters of the model, written in their own dtypes. Those of a patcher that
        `config.patching.mode` does not use are left out.
      layout: "orbax" for bytelax's own layout. "huggingface" writes any model that bytelax can run;
        see `check_transformers` for whether transformers can run it too.
      overwrite: replace a model that was written to the directory before, once the new one is
        complete.
      int8: round the matrices of the layers to int8, with a scale for each output, which halves the
        file beside bfloat16. It reads as float32; only bytelax reads it, and "huggingface" is the
        layout that has it.

    Raises:
      CheckpointError: the directory is not empty, or holds other files than those of a model;
        several processes write a layout other than
        "orbax", the parameters do not match the config, or the disk is full.
    """
    if layout not in get_args(Layout):
        raise CheckpointError(f"layout {layout!r} is not one of {', '.join(get_args(Layout))}")
    if int8 and layout != "huggingface":
        raise CheckpointError(f"the layout {layout} holds no int8: write huggingface")
    _check_free(pathlib.Path(directory), overwrite)
    target = pathlib.Path(directory).resolve()
    settled = architectures.without_idle_patcher(config)
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
        _module(layout).write(temporary, settled, params, **({"int8": True} if int8 else {}))
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
                f"{directory} holds {name}, which is not of a model; choose another directory"
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


def detect(directory: pathlib.Path) -> Literal["orbax", "huggingface", "meta"]:
    """Detects the layout of a checkpoint directory.

    Raises:
      CheckpointError: the directory has none of the three layouts.
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


def _module(layout: str) -> types.ModuleType:
    """Imports a layout when it is used: Orbax alone takes as long to import as a model to load."""
    return importlib.import_module(f"bytelax.checkpoints.{layout}")


class _Opened(NamedTuple):
    """A checkpoint of which only the config has been read."""

    layout: types.ModuleType
    source: str  # what to call it in errors
    config: Config
    stored: Any  # handles of the stored arrays, with their shapes and dtypes


def _open(location, overrides):
    """Opens a checkpoint; returns it, and the overrides that are of config fields."""
    asked = {name: overrides[name] for name in byte_ids.ASKED if name in overrides}
    rest = {name: value for name, value in overrides.items() if name not in asked}
    directory = _directory(location)
    module = _module(detect(directory))
    if module.__name__.endswith("huggingface"):
        config, stored = module.read_config(directory, asked)
    else:
        byte_ids.refuse(asked)
        config, stored = module.read_config(directory)
    return _Opened(module, str(directory), config, stored), rest


def _overridden(location, overrides):
    """Opens a checkpoint, replaces config fields, and checks them against the parameters."""
    found, rest = _open(location, overrides)
    found = found._replace(config=architectures.override(found.config, rest))
    found.layout.check(found.config, found.stored, found.source)
    return found


def _directory(location):
    if not str(location):  # pathlib would take it for the current directory
        raise CheckpointError("the name of the model is empty; give a directory or a hub id")
    directory = pathlib.Path(location)
    if directory.is_dir():
        return directory
    if directory.exists():
        raise CheckpointError(f"{location} is a file; give the directory it is in")
    if not isinstance(location, str) or not _HUB_NAME.fullmatch(location):
        mount = "; mount the bucket, or copy from it" if "://" in str(location) else ""
        raise CheckpointError(f"there is no directory {location}{mount}")
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"there is no directory {location}; pip install huggingface_hub to look on the hub"
        ) from None
    try:
        return pathlib.Path(huggingface_hub.snapshot_download(location, allow_patterns=_HUB_FILES))
    except Exception as error:  # requests, hub and validation errors
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(
            f"there is no directory {location}, and the hub did not give it: {reason}"
        ) from None
