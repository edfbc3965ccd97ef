"""bytelax's own layout: config.json and an Orbax checkpoint of the parameters beside it."""

import json
import pathlib
from collections.abc import Mapping

import jax
import numpy as np
from orbax.checkpoint import v1 as ocp

from bytelax.checkpoints import config_fields, layout
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import PATCHER, Config, Shardings
from bytelax.pods import distributed

VERSION = 1
_PARAMETERS = "parameters"


def read(
    directory: pathlib.Path,
    *,
    dtype: np.dtype | None,
    overrides: dict,
    shardings: Shardings | None,
) -> tuple[Config, dict]:
    """Config and parameters of a directory; see `bytelax.checkpoints.read`.

    With `shardings` every process reads only what its devices hold, without them all of it, on its
    first device. Orbax reads the arrays at once, so that a CPU holds up to twice the result for a
    moment; the other layouts need no such room.
    """
    source = str(directory / "config.json")
    fields = config_fields.read_json(directory / "config.json")
    if fields.get("version") != VERSION:
        raise CheckpointError(
            f"{source} is of format version {fields.get('version')!r}; this bytelax reads {VERSION}"
        )
    if fields.get("kind") not in config_fields.KINDS:
        raise CheckpointError(f"{source} is of an unknown kind {fields.get('kind')!r}")
    cls = config_fields.KINDS[fields["kind"]]
    config = config_fields.from_fields(cls, fields.get("config") or {}, source)
    config = config_fields.override(config, overrides)
    path = directory.absolute() / _PARAMETERS  # Orbax takes no other
    if not path.is_dir():
        raise CheckpointError(f"{directory} has no folder {_PARAMETERS}; copy it again")
    try:
        stored = layout.flatten(ocp.metadata(path).metadata)
    except Exception as error:  # Orbax and TensorStore raise many kinds
        raise CheckpointError(f"{path} is no Orbax checkpoint: {_line(error)}") from None
    abstract = _abstract(config, stored, dtype, source=str(path))
    known = {path: leaf for path, leaf in abstract.items() if leaf is not ocp.PLACEHOLDER}
    if shardings is None:
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        places = dict.fromkeys(known, device)
    else:
        places = layout.flatten(shardings(config, layout.unflatten(known)))
    for name, leaf in known.items():
        abstract[name] = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=places[name])
    try:
        params = ocp.load(path, layout.unflatten(abstract))
    except Exception as error:
        raise CheckpointError(f"{path} cannot be read, copy it again: {_line(error)}") from None
    params = layout.flatten(params)
    return config, layout.unflatten({name: params[name] for name in known})


def write(directory: pathlib.Path, config: Config, params: Mapping) -> None:
    """Writes config.json and the folder `parameters`."""
    layout.state_dict(config, params)  # checks the tree
    fields = {
        "format": "bytelax",
        "version": VERSION,
        "kind": config_fields.kind(config),
        "config": config_fields.to_fields(config),
    }
    if distributed.is_first():
        (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    ocp.save(directory.absolute() / _PARAMETERS, params)


def _abstract(config, stored, dtype, source):
    """Shape and dtype of each parameter; a placeholder for what is stored and not wanted."""
    table = layout.parameters(config)
    abstract = {}
    for name, parameter in table.items():
        if name not in stored:
            raise CheckpointError(
                f"{source} lacks the parameter {name}, which its config calls for"
            )
        found = tuple(stored[name].shape)
        if found != parameter.shape:
            raise CheckpointError(
                f"{source}: {name} has shape {found}, its config calls for {parameter.shape}"
            )
        wanted = np.float32 if name.startswith(PATCHER) else dtype or stored[name].dtype
        abstract[name] = jax.ShapeDtypeStruct(parameter.shape, wanted)
    for name in stored:
        if name not in table:
            if not name.startswith(PATCHER):
                raise CheckpointError(
                    f"{source} has a parameter {name}, which its config has no place for"
                )
            abstract[name] = ocp.PLACEHOLDER
    return abstract


def _line(error):
    return (str(error).splitlines() or [type(error).__name__])[0]
