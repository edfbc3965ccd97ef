"""Flags for decoding, made from the options of the named methods and grouped by method."""

import dataclasses
import difflib
from typing import Annotated, Any, Literal

import tyro

from bytelax.commands import method_table
from bytelax.commands.method_table import OptionRow

_SHARED = "drafting"  # the group of options that more methods than this have
_FEW = 3
_TYPES: dict[str, Any] = {
    "int": int, "float": float, "bool": bool, "ints": tuple[int, ...], "str": str,
}  # fmt: skip


def _groups() -> dict[str, dict[str, tuple[OptionRow, list[str]]]]:
    """The options of all methods in groups, each with the methods that have it.

    A group is named after the first method that has its options, or `_SHARED`.
    """
    found: dict[str, tuple[OptionRow, list[str]]] = {}
    for method in method_table.methods():
        for option in method.options:
            found.setdefault(option.name, (option, []))[1].append(method.name)
    groups: dict[str, dict] = {_SHARED: {}}
    for name, (option, of) in found.items():
        groups.setdefault(of[0] if len(of) <= _FEW else _SHARED, {})[name] = (option, of)
    return groups


def _field(option: OptionRow, of: list[str]) -> tuple:
    help = option.help if len(of) > _FEW else f"{option.help} ({', '.join(of)})"
    kind = Literal[tuple(option.choices)] if option.choices else _TYPES[option.kind]
    # Flags stand in the group of a nested class, but their names do not begin with its name.
    flag: Any = Annotated[
        kind | None, tyro.conf.arg(name=option.name, prefix_name=False, help=help)
    ]
    return option.name, flag, dataclasses.field(default=None)


def _group(name: str, options: dict[str, tuple[OptionRow, list[str]]]) -> tuple:
    fields = [_field(option, of) for option, of in options.values()]
    cls: Any = dataclasses.make_dataclass(name.replace("-", "_"), fields, frozen=True)
    cls.__doc__ = (
        "Options of most methods that draft."
        if name == _SHARED
        else f"Options of the method {name}, and of others where it says so."
    )
    kind: Any = Annotated[cls, tyro.conf.arg(name=name)]
    return name.replace("-", "_"), kind, dataclasses.field(default=cls())


_Options: Any = dataclasses.make_dataclass(
    "_Options", [_group(*item) for item in _groups().items()], frozen=True
)


@dataclasses.dataclass(frozen=True)
class MethodFlags(_Options):
    """The decoding method with its options, and the sampling parameters."""

    method: str = "ar"
    """Decoding method; `bytelax methods` lists them."""
    temperature: float = 0.0
    """Sampling temperature; 0 always takes the most likely byte."""
    top_k: int = 0
    """Sample among this number of most likely bytes only; 0 samples among all."""
    top_p: float = 1.0
    """Sample among the most likely bytes with this total probability only."""
    window: int | None = None
    """Pad every verified window to this number of bytes, so that the outputs of methods can be
    compared bit for bit."""

    def __post_init__(self):
        check_name(self.method)

    @property
    def options(self) -> dict[str, Any]:
        """The options that were given, as they were given."""
        groups = (getattr(self, name.replace("-", "_")) for name in _groups())
        given = (dataclasses.asdict(group) for group in groups)
        return {name: x for group in given for name, x in group.items() if x is not None}

    def keywords(self, dtype: str | None) -> dict[str, Any]:
        """Returns keywords of `bytelax.generate`, with a draft model that is loaded.

        Args:
          dtype: dtype of the draft model's weights; None keeps the stored dtype.
        """
        from bytelax.loading import load

        found = self.options
        if "draft_model" in found:
            found["draft_model"] = load(found["draft_model"], dtype=dtype)
        names = ("method", "temperature", "top_k", "top_p", "window")
        return found | {name: getattr(self, name) for name in names}


def check_name(method: str) -> None:
    """Raises ValueError if there is no method of this name."""
    known = [row.name for row in method_table.methods()]
    if method not in known:
        near = difflib.get_close_matches(method, known, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"unknown method {method!r}; {meant}there are: {', '.join(known)}")
