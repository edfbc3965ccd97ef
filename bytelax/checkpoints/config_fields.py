"""Configs as JSON objects, and what changes in them on the way in."""

import dataclasses
import json
import pathlib
import types
import typing

from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import Config
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig

KINDS = {"blt": BLTConfig, "byte-lm": ByteLMConfig}
OVERRIDES = {  # flat name: where it lies in the config
    "monotonicity": "patching.monotonicity",
    "patching_threshold": "patching.threshold",
    "patching_threshold_add": "patching.threshold_add",
    "patching_mode": "patching.mode",
    "patching_stride": "patching.stride",
    "max_patch_length": "patching.max_patch_length",
    "mask_documents": "mask_documents",
    "max_bytes": "max_bytes",
}


def kind(config: Config) -> str:
    """ "blt" or "byte-lm"."""
    return next(name for name, cls in KINDS.items() if isinstance(config, cls))


def to_fields(config: Config) -> dict:
    """The config as a JSON object: nested dicts, lists, numbers, strings."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_fields(cls: type, fields: dict, source: str) -> Config:
    """The config of class `cls` back from its JSON object.

    Raises:
      CheckpointError: a field is missing, unknown or has a value the config refuses.
    """
    return _build(cls, fields, source)


def read_json(path: pathlib.Path) -> dict:
    """The JSON object in a file.

    Raises:
      CheckpointError: the file holds none.
    """
    try:
        value = json.loads(path.read_text())
    except ValueError:
        raise CheckpointError(f"{path} is not JSON; download or write it again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object; download or write it again")
    return value


def difference(fields: dict, base: dict) -> dict:
    """The smallest nested dict that `merge` turns `base` into `fields` with."""
    changed = {}
    for name, value in fields.items():
        before = base.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            value = difference(value, before)
            if value:
                changed[name] = value
        elif name not in base or value != before:
            changed[name] = value
    return changed


def merge(base: dict, changed: dict) -> dict:
    """`base` with the nested values of `changed`."""
    merged = dict(base)
    for name, value in changed.items():
        nested = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = merge(base[name], value) if nested else value
    return merged


def override(config: Config, changes: dict) -> Config:
    """The config with the fields of `OVERRIDES` replaced, by flat name.

    `mask_documents` is also the patcher's. A patcher that the patching mode has no use for is
    dropped, with its parameters.

    Raises:
      CheckpointError: an unknown name, or a value the config refuses.
    """
    valid = {name: place for name, place in OVERRIDES.items() if _has(config, place)}
    fields = to_fields(config)
    for name, value in changes.items():
        if name not in valid:
            raise CheckpointError(f"cannot override {name!r} here; what can be: {', '.join(valid)}")
        group, _, field = valid[name].rpartition(".")
        (fields[group] if group else fields)[field] = value
        if field == "mask_documents" and fields.get("patcher"):
            fields["patcher"][field] = value
    return without_idle_patcher(from_fields(type(config), fields, "override"))


def without_idle_patcher(config: Config) -> Config:
    """The config less an entropy model that its patching mode never asks."""
    if isinstance(config, BLTConfig) and config.patching.mode != "entropy":
        return dataclasses.replace(config, patcher=None)
    return config


def _has(config, place):
    return hasattr(config, place.split(".")[0])


def _build(cls, fields, source):
    hints = typing.get_type_hints(cls)
    for name in fields:
        if name not in hints:
            raise CheckpointError(f"{source}: the config has an unknown field {name!r}")
    try:
        return cls(
            **{name: _value(hints[name], x, f"{source}, {name}") for name, x in fields.items()}
        )
    except CheckpointError:
        raise
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{source}: {_line(error)}") from None


def _value(hint, value, source):
    """A JSON value as the type that a config field asks for."""
    optional = isinstance(hint, types.UnionType) and types.NoneType in typing.get_args(hint)
    if optional:
        if value is None:
            return None
        (hint,) = (option for option in typing.get_args(hint) if option is not types.NoneType)
    if dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _build(hint, value, source)
    if typing.get_origin(hint) is tuple and isinstance(value, list):
        return tuple(value)
    if hint is float and type(value) is int:
        return float(value)
    expected = typing.get_origin(hint) or hint
    right = type(value) is expected if isinstance(expected, type) else True
    if not right:
        raise CheckpointError(
            f"{source} is {value!r} where {getattr(hint, '__name__', hint)} belongs"
        )
    return value


def _line(error):
    return str(error).splitlines()[0]
