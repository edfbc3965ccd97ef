"""Reads checkpoints in the layouts of bytelax, of transformers and of Meta."""

import importlib
import math
import os
import pathlib
import re
import types
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from bytelax_kernels import native
from jax.typing import DTypeLike

from bytelax.architectures import PATCHER
from bytelax.checkpoints import byte_ids
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.layout import Shardings, network_kernels
from bytelax.checkpoints.overrides import override, patcher_of
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import ModelConfig
from bytelax.models.patching import PatchingConfig

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
) -> tuple[ModelConfig, dict]:
    """Reads the config and the parameters of a model from a directory or from the hub.

    The layouts of transformers and Meta are read parameter by parameter, so that the host never
    holds much more than the result. Orbax may take up to twice as much on a CPU.

    Args:
      location: a directory in any of the three layouts, or a name `org/model` on the hub.
      dtype: "float32", "bfloat16", "float16" or a dtype of this name, for all parameters except the
        entropy model's, which are always float32, because entropies are compared with a threshold.
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


def read_config(location: str | os.PathLike, **overrides: Any) -> ModelConfig:
    """Reads the config of a model, and checks it against the shapes of the stored parameters.

    Arguments and errors are those of `read`.
    """
    return _overridden(location, overrides).config


def read_patcher(
    location: str | os.PathLike, **overrides: Any
) -> tuple[ByteLMConfig, PatchingConfig, dict]:
    """Reads an entropy model: a byte transformer, or only that of a BLT.

    Args:
      location: as in `read`.
      **overrides: as in `read`. Those of patching apply to a byte transformer too, whose files
        hold no patching rule.

    Returns:
      The config of the entropy model, the patching rule, and the parameters in float32.

    Raises:
      CheckpointError: as in `read`, or the BLT has no entropy model.
    """
    found, changes = _open(location, overrides)
    config, rule = patcher_of(found.config, changes)
    found.layout.check(config, found.stored, found.source)
    within = config.patcher is not None  # a byte transformer is one itself
    params = found.layout.read_parameters(
        config,
        found.stored,
        found.source,
        dtype=jnp.dtype("float32"),
        under=PATCHER if within else "",
    )
    entropy_model: Any = config.patcher if within else config
    return entropy_model, rule, params["patcher"] if within else params


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


class _Opened(NamedTuple):
    """A checkpoint whose config has been read, and nothing else."""

    layout: types.ModuleType
    source: str  # what to call it in errors
    config: ModelConfig
    stored: Any  # handles of the stored arrays, with their shapes and dtypes


def _open(location, overrides):
    """Opens a checkpoint; returns it, and the overrides that are of config fields."""
    asked = {name: overrides[name] for name in byte_ids.ASKED if name in overrides}
    rest = {name: value for name, value in overrides.items() if name not in asked}
    directory = _directory(location)
    layout = detect(directory)
    # Only when it is used: Orbax alone takes as long to import as a model to load.
    module = importlib.import_module(f"bytelax.checkpoints.{layout}")
    if layout == "huggingface":
        config, stored = module.read_config(directory, asked)
    else:
        byte_ids.refuse(asked)
        config, stored = module.read_config(directory)
    return _Opened(module, str(directory), config, stored), rest


def _overridden(location, overrides):
    """Opens a checkpoint, replaces config fields, and checks them against the parameters."""
    found, rest = _open(location, overrides)
    found = found._replace(config=override(found.config, rest))
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
