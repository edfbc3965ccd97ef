"""bytelax's own layout: config.json and an Orbax checkpoint of the parameters beside it."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from bytelax import config as plain
from bytelax.checkpoints import config_fields, layout
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import PATCHER, Config, Shardings
from bytelax.messages import one_line, quiet
from bytelax.pods import distributed

VERSION = 1
_PARAMETERS = "parameters"


class Stored(NamedTuple):
    """An Orbax checkpoint: where it is, and shape and dtype of its arrays by path."""

    path: pathlib.Path
    arrays: dict[str, Any]


def read_config(directory: pathlib.Path) -> tuple[Config, Stored]:
    """The config of a directory, and what there is for it.

    Raises:
      CheckpointError, ConfigError: it holds no model that we can run.
    """
    source = str(directory / "config.json")
    fields = plain.read_json(directory / "config.json")
    if fields.get("version") != VERSION:
        raise CheckpointError(
            f"{source} is of format version {fields.get('version')!r}; this bytelax reads {VERSION}"
        )
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in config_fields.KINDS:
        raise CheckpointError(f"{source} is of an unknown kind {kind!r}")
    config = plain.from_fields(config_fields.KINDS[kind], fields.get("config"), source)
    path = directory.absolute() / _PARAMETERS  # Orbax takes no other
    if not path.is_dir():
        raise CheckpointError(f"{directory} has no folder {_PARAMETERS}; copy it again")
    try:
        return config, Stored(path, layout.flatten(ocp.metadata(path).metadata))
    except Exception as error:  # Orbax and TensorStore raise many kinds
        raise CheckpointError(f"{path} is no Orbax checkpoint: {one_line(error)}") from None


def check(config: Config, stored: Stored, source: str) -> None:
    """Raises CheckpointError where the parameters are not those of the config."""
    shapes = {name: tuple(array.shape) for name, array in stored.arrays.items()}
    table = layout.bounded_parameters(config, shapes, source)
    for name, parameter in table.items():
        if name not in shapes:
            raise CheckpointError(
                f"{source} lacks the parameter {name}, which its config calls for"
            )
        if shapes[name] != parameter.shape:
            raise CheckpointError(
                f"{source}: {name} has shape {shapes[name]}, its config calls for {parameter.shape}"
            )
    for name in shapes:
        if name not in table and not name.startswith(PATCHER):
            raise CheckpointError(
                f"{source} has a parameter {name}, which its config has no place for"
            )


def read_parameters(
    config: Config,
    stored: Stored,
    *,
    dtype: np.dtype | None,
    shardings: Shardings | None,
) -> dict:
    """The parameters that the config has a place for.

    With `shardings` every process reads only what its devices hold, without them all of it, on its
    first device. Orbax reads the arrays at once, so that a CPU holds up to twice the result for a
    moment; the other layouts need no such room.
    """
    known = {}
    for name, parameter in layout.parameters(config).items():
        wanted = np.float32 if name.startswith(PATCHER) else dtype or stored.arrays[name].dtype
        known[name] = jax.ShapeDtypeStruct(parameter.shape, wanted)
    if shardings is None:
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        places = dict.fromkeys(known, device)
    else:
        places = layout.flatten(shardings(config, layout.unflatten(known)))
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
    return layout.unflatten({name: params[name] for name in known})


def write(directory: pathlib.Path, config: Config, params: Mapping) -> None:
    """Writes config.json and the folder `parameters`."""
    layout.state_dict(config, params)  # checks the tree
    fields = {
        "format": "bytelax",
        "version": VERSION,
        "kind": config_fields.kind(config),
        "config": plain.to_fields(config),
    }
    if distributed.is_first():
        (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    with quiet("absl"):  # a full disk is an exception too
        ocp.save(directory.absolute() / _PARAMETERS, params)
