"""Checks of the values of configs and options, by the types of their fields."""

import functools
import numbers
import reprlib
import types
import typing
from collections.abc import Callable
from typing import Any, ClassVar, Literal

field_types: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


class Checked:
    """A frozen dataclass whose fields hold what their types say.

    Attributes:
      place: what stands before the name of a field in messages.
      by_name: fields of text that also hold what the text names; that is checked where it is used.

    Raises:
      ValueError: a field holds something else.
    """

    place: ClassVar[str] = ""
    by_name: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self):
        hints = field_types(type(self))
        for name, value in vars(self).items():
            if name not in self.by_name or isinstance(value, str):
                check_type(f"{self.place}{name}", value, hints[name])
                if isinstance(value, list):  # a config has to be hashable
                    object.__setattr__(self, name, tuple(value))


def check_least(config: Any, least: int, *names: str, place: str = "") -> None:
    """Raises ValueError if one of these fields is below `least`; a field may be None.

    Args:
      config: has the fields.
      least: the smallest value.
      *names: names of the fields.
      place: what stands before a name in the message.
    """
    for name in names:
        value = vars(config)[name]
        if value is not None and value < least:
            raise ValueError(f"{place}{name} must be at least {least}, got {value}")


_WORDS = {
    int: "a whole number below 2**31",
    float: "a number",
    bool: "True or False",
    str: "text",
    types.NoneType: "None",
    tuple[int, ...]: "a list of whole numbers",
}


def check_type(name: str, value: Any, hint: Any) -> None:
    """Raises ValueError, in which a value has this name, if it is not of a type."""
    union = typing.get_origin(hint) in (types.UnionType, typing.Union)
    kinds = typing.get_args(hint) if union else (hint,)
    if not any(_fits(value, kind) for kind in kinds):
        words = " or ".join(map(_word, kinds))
        raise ValueError(f"{name} is {words}, got {reprlib.repr(value)}")


def _word(kind):
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(typing.get_args(kind))}"
    if typing.get_origin(kind) is tuple and kind not in _WORDS:
        return f"a list of {typing.get_args(kind)[0].__name__}"
    return _WORDS.get(kind) or f"of class {kind.__name__}"


def _fits(value, kind):
    """Whether a value is of a type. Integers must fit into 32 bits."""
    if kind is Any:
        return True
    if value is None:
        return kind is types.NoneType
    if type(value).__name__ in ("bool", "bool_"):  # NumPy's too, without an import of NumPy
        return kind is bool
    if kind in (bool, types.NoneType):
        return False
    if typing.get_origin(kind) is tuple:
        whole = typing.get_args(kind)[0]
        return isinstance(value, tuple | list) and all(_fits(part, whole) for part in value)
    if kind is int:
        return isinstance(value, numbers.Integral) and -(2**31) <= int(value) < 2**31
    if kind is float:
        return isinstance(value, numbers.Real)
    if typing.get_origin(kind) is Literal:
        return isinstance(value, str) and value in typing.get_args(kind)
    # Other types with parameters, in an option of a user's own, are theirs to check.
    return typing.get_origin(kind) is not None or isinstance(value, kind)
