"""Converts configs between frozen dataclasses and nested dicts, JSON and TOML, with validation.

Files are not trusted. Every value must have exactly the type of its field, integers must fit in 32
bits, numbers must be finite, and a config's own `__post_init__` validates the rest. Error messages
are one line that names the field.
"""

import dataclasses
import functools
import json
import math
import os
import pathlib
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import cattrs
import tomlkit
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn

T = TypeVar("T")
_LARGEST = 2**31 - 1  # sizes, positions and seeds are 32-bit integers on a device
_MAX_FILE = 64 << 20  # bytes; indices of released models have a few hundred thousand at most
_NONE = "None"  # TOML has no null


class ConfigError(ValueError):
    """A config cannot be read; the message is one line that names the field."""


def one_line(error: BaseException) -> str:
    """The first non-empty line of an error's message, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def converter(*, unknown: Literal["refuse", "ignore"] = "refuse") -> cattrs.Converter:
    """Creates a cattrs converter between dataclasses and nested dicts, with strict types.

    Args:
      unknown: whether to refuse or ignore fields that a dataclass does not have.
    """
    made = cattrs.Converter(forbid_extra_keys=unknown == "refuse")
    for cls, what in ((bool, "true or false"), (str, "text"), (dict, "an object")):
        made.register_structure_hook(cls, _exactly(cls, what))
    made.register_structure_hook(int, _whole)
    made.register_structure_hook(float, _number)
    made.register_structure_hook_factory(_is(tuple), _tuple_of)
    made.register_structure_hook_factory(_is(dict), _dict_of)
    made.register_structure_hook_factory(_is(Literal), _one_of)
    made.register_structure_hook_factory(dataclasses.is_dataclass, _object_of)
    made.register_unstructure_hook_func(_is(tuple), lambda x: [*map(made.unstructure, x)])
    return made


def toml_converter() -> cattrs.Converter:
    """Creates a converter for TOML, which has no null and uses the text "None" for it."""
    made = converter()

    def optional(hint, made):
        (hint,) = (x for x in typing.get_args(hint) if x is not types.NoneType)
        return lambda x, _: None if x in (None, _NONE) else made.structure(x, hint)

    made.register_structure_hook_factory(_is(types.UnionType, typing.Union), optional)
    return made


_of_json = functools.cache(converter)


def to_fields(config: Any, *, by: cattrs.Converter | None = None) -> dict:
    """Converts a config to a JSON object of nested dicts, lists, numbers and text.

    Args:
      config: a dataclass.
      by: converter that decides how values are represented; by default that of JSON.
    """
    return (by or _of_json()).unstructure(config)


def from_fields(cls: type[T], fields: Any, source: str, *, by: cattrs.Converter | None = None) -> T:
    """Creates a config of class `cls` from a JSON object.

    Args:
      cls: a dataclass.
      fields: nested dicts; fields that are left out have their defaults.
      source: name of the file in error messages.
      by: converter that decides how values are represented; by default that of JSON.

    Raises:
      ConfigError: a field is missing or unknown, or the config refuses its value.
    """
    try:
        return (by or _of_json()).structure(fields, cls)
    except (ClassValidationError, ValueError) as error:
        raise ConfigError(f"{source}: {_first(error)}") from None


def known_fields(cls: type[T], fields: Any, source: str) -> T:
    """As `from_fields`, but ignores fields that `cls` does not have, in files of other software."""
    return from_fields(cls, fields, source, by=_of_json(unknown="ignore"))


def require(fields: object, **values: Any) -> None:
    """Raises ValueError unless each of these attributes has this value, or is None."""
    for name, value in values.items():
        found = getattr(fields, name)
        if found is not None and found != value:
            raise ValueError(
                f"{name} is {_short(found)}; bytelax computes only with {value!r}, so run this "
                "model elsewhere"
            )


def read_json(path: pathlib.Path) -> dict:
    """Reads the JSON object in a file.

    Raises:
      ConfigError: the file holds no JSON object.
    """
    if not path.is_file():  # reading a pipe would block
        raise ConfigError(f"{path} is not a file")
    if path.stat().st_size > _MAX_FILE:
        raise ConfigError(f"{path} is too large to be a config; download or write it again")
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise ConfigError(f"{path} is not JSON; download or write it again") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object; download or write it again")
    return value


def read_toml(path: pathlib.Path) -> dict:
    """Reads a TOML file as nested dicts.

    Raises:
      ConfigError: the file is not valid TOML.
      OSError: the file cannot be read.
    """
    try:
        return tomllib.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is no TOML: {one_line(error)}") from None


def to_toml(fields: Mapping) -> str:
    """Formats nested dicts as TOML, with None as the text "None"."""
    return tomlkit.dumps(_as_toml(fields))


def merge(base: Mapping, changed: Mapping) -> dict:
    """Updates `base` with the values of `changed`, recursively, and returns the result."""
    merged = dict(base)
    for name, value in changed.items():
        nested = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = merge(base[name], value) if nested else value
    return merged


def difference(fields: Mapping, base: Mapping) -> dict:
    """The smallest nested dict of changes with which `merge` turns `base` into `fields`."""
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


def _exactly(cls, what):
    def structure(value, _):
        if type(value) is not cls:
            raise ValueError(f"is {_short(value)} where {what} belongs")
        return value

    return structure


def _whole(value, _):
    if type(value) is not int:
        raise ValueError(f"is {_short(value)} where a whole number belongs")
    if abs(value) > _LARGEST:
        raise ValueError(f"does not fit in 32 bits: {_short(value)}")
    return value


def _number(value, _):
    if type(value) not in (int, float):
        raise ValueError(f"is {_short(value)} where a number belongs")
    if not -math.inf < value < math.inf or abs(value) > 1e300:  # JSON's integers are unbounded
        raise ValueError(f"must be finite, got {_short(value)}")
    return float(value)


def _tuple_of(hint, made):
    *hints, last = typing.get_args(hint)

    def structure(values, _):
        if type(values) not in (list, tuple):
            raise ValueError(f"is {_short(values)} where a list belongs")
        each = hints * len(values) if last is Ellipsis else [*hints, last]
        if len(each) != len(values):
            raise ValueError(f"has {len(values)} entries, not {len(each)}")
        return tuple(map(made.structure, values, each))

    return structure


def _dict_of(hint, made):
    is_object = _exactly(dict, "an object")
    key, value = typing.get_args(hint)

    def structure(values, _):
        pairs = is_object(values, dict).items()
        return {made.structure(k, key): made.structure(x, value) for k, x in pairs}

    return structure


def _one_of(hint, made):
    choices = typing.get_args(hint)

    def structure(value, _):
        if type(value) is not str or value not in choices:
            raise ValueError(f"is {_short(value)}, not one of {', '.join(choices)}")
        return value

    return structure


def _object_of(cls, made):
    structure = make_dict_structure_fn(cls, made)
    is_object = _exactly(dict, "an object")
    return lambda value, _: structure(is_object(value, dict), cls)


def _is(*origins):
    """Whether a type is one of these with arguments, such as `tuple[int, ...]`."""
    return lambda hint: typing.get_origin(hint) in origins


def _first(error, place=""):
    """Formats the first error in a group, with the path of its field."""
    if not isinstance(error, ClassValidationError):
        return f"{place} {one_line(error)}".lstrip()
    placed, unplaced = error.group_exceptions()
    for inner, note in placed:
        name = f"{place}.{note.name}".lstrip(".")
        if isinstance(inner, KeyError):
            return f"the field {name} is missing"
        return _first(inner, name)
    inner = unplaced[0]
    if isinstance(inner, ForbiddenExtraKeysError):
        unknown = f"{place}.{min(inner.extra_fields)}".lstrip(".")
        return f"there is an unknown field {_short(unknown)}"
    return f"{place}: {one_line(inner)}".lstrip(": ")


def _short(value):
    """Formats a value for an error message, in at most 60 characters."""
    if type(value) is int and abs(value) > 10**20:  # Python refuses to format very large ones
        return "a number of more than 20 digits"
    plain = isinstance(value, str | int | float | None)
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _as_toml(value):
    if isinstance(value, Mapping):
        return {name: _as_toml(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_as_toml(x) for x in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _NONE if value is None else value
