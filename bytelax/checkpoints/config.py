"""Converts configs between frozen dataclasses and nested dicts, JSON and TOML, with validation.

Every value must have exactly the type of its field, and a config's own `__post_init__` validates
the rest. Error messages are one line that names the field.
"""

import dataclasses
import json
import math
import pathlib
import reprlib
import tomllib
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import tomlkit

from bytelax.checked import field_types

T = TypeVar("T")
_NONE = "None"  # TOML has no null


class CheckpointError(ValueError):
    """A checkpoint or a config cannot be read or written; the message is one line that says why."""


def one_line(error: BaseException) -> str:
    """The first non-empty line of an error's message, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def to_fields(value: Any) -> Any:
    """Converts a config, a dataclass, to nested dicts, lists, numbers and text.

    A class that can `parse` text is written as text.
    """
    if hasattr(value, "parse"):
        return str(value)
    if dataclasses.is_dataclass(value):
        value = {x.name: vars(value)[x.name] for x in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: to_fields(x) for name, x in value.items()}
    return [to_fields(x) for x in value] if isinstance(value, tuple) else value


def from_fields(
    cls: type[T], fields: Any, source: str, *, unknown: Literal["refuse", "ignore"] = "refuse"
) -> T:
    """Creates a config of class `cls` from a JSON object.

    Args:
      cls: a dataclass.
      fields: nested dicts; fields that are left out have their defaults.
      source: name of the file in error messages.
      unknown: whether to refuse or ignore fields that a dataclass does not have.

    Raises:
      CheckpointError: a field is missing or unknown, or the config refuses its value.
    """
    try:
        return _read(cls, fields, "", unknown == "refuse")
    except (ValueError, OverflowError) as error:
        raise CheckpointError(f"{source}: {one_line(error)}") from None


def known_fields(cls: type[T], fields: Any, source: str) -> T:
    """As `from_fields`, but ignores fields that `cls` does not have, in files of other software."""
    return from_fields(cls, fields, source, unknown="ignore")


def require(fields: object, **values: Any) -> None:
    """Raises ValueError unless each of these attributes has this value, or is None."""
    for name, value in values.items():
        found = vars(fields)[name]
        if found is not None and found != value:
            raise ValueError(
                f"{name} is {reprlib.repr(found)}; bytelax computes only with {value!r}, so run "
                "this model elsewhere"
            )


def read_json(path: pathlib.Path) -> dict:
    """Reads the JSON object in a file.

    Raises:
      CheckpointError: the file holds no JSON object.
    """
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object; download or write it again")
    return value


def read_toml(path: pathlib.Path) -> dict:
    """Reads a TOML file as nested dicts, in which the text "None" becomes None.

    Raises:
      CheckpointError: the file is not valid TOML.
    """
    try:
        return _replaced(tomllib.loads(path.read_text()), _NONE, None)
    except ValueError as error:
        raise CheckpointError(f"{path} is not TOML: {one_line(error)}") from None


def to_toml(fields: Mapping) -> str:
    """Formats nested dicts as TOML, with None as the text "None"."""
    return tomlkit.dumps(_replaced(fields, None, _NONE))


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


_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _read(hint: Any, value: Any, place: str, strict: bool) -> Any:
    """Returns the value of the field at a place, a dotted name, by its type."""
    kind, hints = typing.get_origin(hint), typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):  # with None
        (hint,) = (x for x in hints if x is not types.NoneType)
        return None if value is None else _read(hint, value, place, strict)
    if hasattr(hint, "parse"):
        return hint.parse(_exactly(str, "text", value, place))
    if dataclasses.is_dataclass(hint):
        return _object(hint, _exactly(dict, "an object", value, place), place, strict)
    if kind is tuple:
        values = _exactly(list, "a list", list(value) if isinstance(value, tuple) else value, place)
        each = hints[:1] * len(values) if hints[-1] is Ellipsis else hints
        if len(each) != len(values):
            raise ValueError(f"{place} has {len(values)} entries, not {len(each)}")
        return tuple(_read(x, y, place, strict) for x, y in zip(each, values, strict=True))
    if kind is Literal:
        if value not in hints:
            words = ", ".join(hints)
            raise ValueError(f"{place} is {reprlib.repr(value)}, not one of {words}")
        return value
    if kind is dict or hint is dict:
        fields = _exactly(dict, "an object", value, place)
        inner = hints[1] if hints else Any
        return {name: _read(inner, x, place, strict) for name, x in fields.items()}
    if hint is Any or hint is pathlib.Path:
        return value
    if hint is float and type(value) is int:
        value = float(value)
    value = _exactly(hint, _KINDS[hint], value, place)
    if hint is float and not math.isfinite(value):
        raise ValueError(f"{place} must be finite, got {value}")
    return value


def _object(cls: Any, fields: dict, place: str, strict: bool) -> Any:
    hints, read = field_types(cls), {}
    if strict and not fields.keys() <= hints.keys():
        unknown = f"{place}.{min(fields.keys() - hints)}".lstrip(".")
        raise ValueError(f"there is an unknown field {unknown!r}")
    for field in dataclasses.fields(cls):
        name = f"{place}.{field.name}".lstrip(".")
        if field.name in fields:
            read[field.name] = _read(hints[field.name], fields[field.name], name, strict)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"the field {name} is missing")
    try:
        return cls(**read)
    except ValueError as error:
        raise ValueError(f"{place}: {one_line(error)}".lstrip(": ")) from None


def _exactly(cls: type, what: str, value: Any, place: str) -> Any:
    if type(value) is not cls:
        raise ValueError(f"{place} is {reprlib.repr(value)} where {what} belongs".lstrip())
    return value


def _replaced(value: Any, old: Any, new: Any) -> Any:
    """Nested dicts and lists in which one value stands for another."""
    if isinstance(value, dict):
        return {name: _replaced(x, old, new) for name, x in value.items()}
    if isinstance(value, list):
        return [_replaced(x, old, new) for x in value]
    return new if value == old else value
