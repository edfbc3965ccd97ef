"""Converts configs between frozen dataclasses and nested dicts, JSON and TOML, with validation.

Files are not trusted. Every value must have exactly the type of its field, integers must fit in 32
bits, numbers must be finite, and a config's own `__post_init__` validates the rest. Error messages
are one line that names the field.
"""

import dataclasses
import functools
import json
import math
import pathlib
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import tomlkit

T = TypeVar("T")
_LARGEST = 2**31 - 1  # sizes, positions and seeds are 32-bit integers on a device
_MAX_FILE = 64 << 20  # bytes; indices of released models have a few hundred thousand at most
_NONE = "None"  # TOML has no null
Texts = Mapping[type, Callable[[str], Any]]  # classes that a file has as text, and how it is parsed
_NO_TEXTS: Texts = {}


class CheckpointError(ValueError):
    """A checkpoint or a config cannot be read or written; the message is one line that says why."""


def one_line(error: BaseException) -> str:
    """The first non-empty line of an error's message, or the name of its class."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__)


def to_fields(value: Any, texts: Texts = _NO_TEXTS) -> Any:
    """Converts a config to a JSON object of nested dicts, lists, numbers and text.

    Args:
      value: a dataclass.
      texts: classes whose values are written as text.
    """
    if isinstance(value, tuple(texts)):
        return str(value)
    if dataclasses.is_dataclass(value):
        value = {x.name: vars(value)[x.name] for x in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {name: to_fields(x, texts) for name, x in value.items()}
    return [to_fields(x, texts) for x in value] if isinstance(value, tuple) else value


def from_fields(
    cls: type[T],
    fields: Any,
    source: str,
    *,
    texts: Texts = _NO_TEXTS,
    unknown: Literal["refuse", "ignore"] = "refuse",
) -> T:
    """Creates a config of class `cls` from a JSON object.

    Args:
      cls: a dataclass.
      fields: nested dicts; fields that are left out have their defaults.
      source: name of the file in error messages.
      texts: classes whose values are read from text.
      unknown: whether to refuse or ignore fields that a dataclass does not have.

    Raises:
      CheckpointError: a field is missing or unknown, or the config refuses its value.
    """
    try:
        return _Reader(texts, unknown == "refuse").read(cls, fields, "")
    except ValueError as error:
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
                f"{name} is {_short(found)}; bytelax computes only with {value!r}, so run this "
                "model elsewhere"
            )


def read_json(path: pathlib.Path) -> dict:
    """Reads the JSON object in a file.

    Raises:
      CheckpointError: the file holds no JSON object.
    """
    if not path.is_file():  # reading a pipe would block
        raise CheckpointError(f"{path} is not a file")
    if path.stat().st_size > _MAX_FILE:
        raise CheckpointError(f"{path} is too large to be a config; download or write it again")
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError):
        raise CheckpointError(f"{path} is not JSON; download or write it again") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} holds no JSON object; download or write it again")
    return value


def read_toml(path: pathlib.Path) -> dict:
    """Reads a TOML file as nested dicts, in which the text "None" becomes None.

    Raises:
      CheckpointError: the file is not valid TOML.
      OSError: the file cannot be read.
    """
    try:
        return from_toml(path.read_text())
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no TOML: {one_line(error)}") from None


def from_toml(text: str) -> dict:
    """The nested dicts that `to_toml` has formatted."""
    return _replaced(tomllib.loads(text), _NONE, None)


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


class _Reader(NamedTuple):
    """How values are read; see `from_fields`."""

    texts: Texts
    strict: bool

    def read(self, hint, value, place):
        """Returns the value of the field at a place, a dotted name, by its type."""
        kind, hints = typing.get_origin(hint), typing.get_args(hint)
        if kind in (types.UnionType, typing.Union):  # with None
            (hint,) = (x for x in hints if x is not types.NoneType)
            return None if value is None else self.read(hint, value, place)
        if hint in self.texts:
            return self.texts[hint](_exactly(str, "text", value, place))
        if dataclasses.is_dataclass(hint):
            return self._object(hint, _exactly(dict, "an object", value, place), place)
        if kind is tuple:
            return self._tuple(hints, value, place)
        if kind is Literal:
            if type(value) is not str or value not in hints:
                raise ValueError(f"{place} is {_short(value)}, not one of {', '.join(hints)}")
            return value
        if kind is dict:
            fields = _exactly(dict, "an object", value, place)
            return {name: self.read(hints[1], x, place) for name, x in fields.items()}
        return value if hint is Any else _PLAIN[hint](value, place)

    def _object(self, cls, fields, place):
        hints, read = _hints(cls), {}
        if self.strict and not fields.keys() <= hints.keys():
            unknown = f"{place}.{min(fields.keys() - hints)}".lstrip(".")
            raise ValueError(f"there is an unknown field {_short(unknown)}")
        for field in dataclasses.fields(cls):
            name = f"{place}.{field.name}".lstrip(".")
            if field.name in fields:
                read[field.name] = self.read(hints[field.name], fields[field.name], name)
            elif field.default is field.default_factory is dataclasses.MISSING:
                raise ValueError(f"the field {name} is missing")
        try:
            return cls(**read)
        except ValueError as error:
            raise ValueError(f"{place}: {one_line(error)}".lstrip(": ")) from None

    def _tuple(self, hints, values, place):
        if type(values) not in (list, tuple):
            raise ValueError(f"{place} is {_short(values)} where a list belongs")
        each = hints[:1] * len(values) if hints[-1] is Ellipsis else hints
        if len(each) != len(values):
            raise ValueError(f"{place} has {len(values)} entries, not {len(each)}")
        return tuple(self.read(hint, x, place) for hint, x in zip(each, values, strict=True))


_hints = functools.cache(typing.get_type_hints)


def _exactly(cls, what, value, place):
    if type(value) is not cls:
        raise ValueError(f"{place} is {_short(value)} where {what} belongs".lstrip())
    return value


def _whole(value, place):
    if abs(_exactly(int, "a whole number", value, place)) > _LARGEST:
        raise ValueError(f"{place} does not fit in 32 bits: {_short(value)}")
    return value


def _number(value, place):
    if type(value) not in (int, float):
        raise ValueError(f"{place} is {_short(value)} where a number belongs")
    if not -math.inf < value < math.inf or abs(value) > 1e300:  # JSON's integers are unbounded
        raise ValueError(f"{place} must be finite, got {_short(value)}")
    return float(value)


_PLAIN: dict[Any, Callable[[Any, str], Any]] = {
    int: _whole,
    float: _number,
    bool: functools.partial(_exactly, bool, "true or false"),
    str: functools.partial(_exactly, str, "text"),
    dict: functools.partial(_exactly, dict, "an object"),
}


def _short(value):
    """Formats a value for an error message, in at most 60 characters."""
    if type(value) is int and abs(value) > 10**20:  # Python refuses to format very large ones
        return "a number of more than 20 digits"
    plain = isinstance(value, str | int | float | None)
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _replaced(value, old, new):
    """Nested dicts and lists in which one value stands for another."""
    if isinstance(value, dict):
        return {name: _replaced(x, old, new) for name, x in value.items()}
    if isinstance(value, list):
        return [_replaced(x, old, new) for x in value]
    return new if value == old else value
