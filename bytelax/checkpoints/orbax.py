"""bytelax's own layout: config.json and an Orbax checkpoint of the parameters."""

import contextlib
import json
import logging
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

from bytelax import architectures
from bytelax.architectures import PATCHER
from bytelax.checkpoints import config as plain
from bytelax.checkpoints import layout
from bytelax.checkpoints.config import CheckpointError, one_line
from bytelax.checkpoints.layout import Shardings
from bytelax.checkpoints.tensors import check_finite, not_finite
from bytelax.models.configs import ModelConfig
from bytelax.models.narrow import Int8
from bytelax.pods import distributed

VERSION = 1
_PARAMETERS = "parameters"


class Stored(NamedTuple):
    """An Orbax checkpoint: its path, and the metadata (shape, dtype) of its arrays by name."""

    path: pathlib.Path
    arrays: dict[str, Any]


def read_config(directory: pathlib.Path) -> tuple[ModelConfig, Stored]:
    """Reads the config of a checkpoint directory and the metadata of its arrays.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run.
    """
    source = str(directory / "config.json")
    fields = plain.read_json(directory / "config.json")
    if fields.get("version") != VERSION:
        raise CheckpointError(
            f"{source} has format version {fields.get('version')!r}; this bytelax reads {VERSION}"
        )
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in architectures.CONFIGS:
        raise CheckpointError(f"{source} has an unknown kind {kind!r}")
    config: ModelConfig = plain.from_fields(
        architectures.CONFIGS[kind], fields.get("config"), source
    )
    path = directory.absolute() / _PARAMETERS  # Orbax requires an absolute path
    if not path.is_dir():
        raise CheckpointError(f"{directory} has no folder {_PARAMETERS}; copy it again")
    try:
        return config, Stored(path, layout.flatten(ocp.metadata(path).metadata))
    except Exception as error:  # Orbax and TensorStore raise many kinds
        raise CheckpointError(f"{path} is not an Orbax checkpoint: {one_line(error)}") from None


def check(config: ModelConfig, stored: Stored, source: str) -> None:
    """Raises CheckpointError if the stored parameters do not match the config."""
    shapes = {name: tuple(array.shape) for name, array in stored.arrays.items()}
    wanted = {name: parameter.shape for name, parameter in architectures.parameters(config).items()}
    layout.check_shapes(
        wanted, shapes, source, kind="parameter", ignored=lambda name: name.startswith(PATCHER)
    )


def read_parameters(
    config: ModelConfig,
    stored: Stored,
    source: str,
    *,
    dtype: np.dtype | None,
    shardings: Shardings | None = None,
    under: str = "",
    quantize: bool = False,
) -> dict:
    """Reads the parameters of a checkpoint; arguments are those of `layout.read_parameters`.

    With `shardings` every process reads only the shards of its devices. Without them it reads all
    parameters to its first device. Orbax reads all arrays at the same time, so a CPU temporarily
    holds up to twice the size of the result, unlike with the other layouts, and all parameters are
    read before the first is made int8.

    Raises:
      CheckpointError: an array cannot be read, or holds NaN or infinite values.
    """
    known, dtypes = {}, {}
    axes = layout.quantized_axes(config) if quantize else {}
    for name, parameter in layout.parameters_under(under, config).items():
        held = stored.arrays[name].dtype
        dtypes[name] = np.float32 if name.startswith(PATCHER) else dtype or held
        as_read = held if name in axes else dtypes[name]
        known[name] = jax.ShapeDtypeStruct(parameter.shape, as_read)
    wanted = None if shardings is None else shardings(config, layout.unflatten(known))
    if wanted is None:
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        places = dict.fromkeys(known, device)
    else:
        places = layout.flatten(wanted)
    abstract = dict.fromkeys(stored.arrays, ocp.PLACEHOLDER)
    for name, leaf in known.items():
        abstract[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=places[name])
    try:
        params = ocp.load(stored.path, layout.unflatten(abstract))
    except Exception as error:
        raise CheckpointError(
            f"{stored.path} cannot be read, copy it again: {one_line(error)}"
        ) from None
    params = layout.flatten(params)
    found = {}
    for name in known:
        x = params.pop(name)
        _check_finite(x, f"{source}: the parameter {name}")
        if name in axes:  # each is freed before the next
            x = layout.on_device(Int8.of(np.asarray(x), axes[name], dtype=dtypes[name]))
        found[name] = x
    return layout.unflatten(found)


def _check_finite(x: jax.Array, name: str) -> None:
    """Raises CheckpointError if an array holds NaN or an infinity, without a copy of it.

    The host looks at arrays in its own memory, because to compile a program for each shape would
    take longer than to load a small model. Other arrays are looked at where they are, by all
    processes together, so that none goes on alone.
    """
    if _in_host_memory(x):
        for shard in x.addressable_shards:
            check_finite(np.asarray(shard.data), name)
    elif not jnp.isfinite(x).all():
        raise CheckpointError(not_finite(name, x.dtype))


def _in_host_memory(x: jax.Array) -> bool:
    return x.is_fully_addressable and all(device.platform == "cpu" for device in x.devices())


def write(directory: pathlib.Path, config: ModelConfig, params: Mapping) -> None:
    """Writes config.json, and an Orbax checkpoint in the folder `parameters`.

    Raises:
      CheckpointError: the parameters do not match the config.
    """
    layout.state_dict(config, params)  # raises if the parameters do not match
    fields = {
        "format": "bytelax",
        "version": VERSION,
        "kind": architectures.of(config).name,
        "config": plain.to_fields(config),
    }
    if distributed.is_first():
        (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    with quiet():
        ocp.save(directory.absolute() / _PARAMETERS, params)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """A context that silences the log of Orbax, which logs what it raises as well."""
    found = logging.getLogger("absl")
    before = found.level
    found.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        found.setLevel(before)
