"""`bytelax methods`: lists the decoding methods and their options."""

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import sys
import typing
from typing import Any

from bytelax_kernels import gpus, native

from bytelax.options import METHODS, Options


@dataclasses.dataclass(frozen=True)
class Methods:
    """Flags of `bytelax methods`."""

    json: bool = False
    """Print JSON."""


def run(command: Methods) -> None:
    """Prints the table."""
    if command.json:
        print(json.dumps(table(), indent=1))
        return
    for row in table():
        options = ", ".join(option["name"] for option in row["options"])
        print(f"{row['name']:14}{row['description']}{options and f' Options: {options}.'}")
    print(f"\nOn a processor: {native.why_not() or 'compiled kernels.'}")
    for line in gpus.report():
        print(line)


def table() -> list[dict[str, Any]]:
    """Returns all methods and their options."""
    return [
        {
            "name": name,
            "description": _description(method),
            "options": [_option(method, field) for field in dataclasses.fields(method)],
        }
        for name, method in METHODS.items()
    ]


def _option(method: type[Options], field: dataclasses.Field) -> dict[str, Any]:
    hint = typing.get_type_hints(method)[field.name]
    words = (word for part in (hint, *typing.get_args(hint)) for word in typing.get_args(part))
    needed = field.default is dataclasses.MISSING
    return {
        "name": field.name,
        "default": None if needed else field.default,
        "needed": needed,
        "choices": [word for word in words if isinstance(word, str)],
        "help": _docs(method)[field.name],
    }


def _description(method: type[Options]) -> str:
    summary, *_ = (inspect.getdoc(method) or "").splitlines()
    return f"{summary} {'Lossless' if method.lossless else 'Not lossless'}."


def _docs(method: type[Options]) -> dict[str, str]:
    """The text below each field of a method in its source, or in that of a class above it."""
    known = ((cls.__module__, cls.__name__) for cls in reversed(method.__mro__[:-1]))
    return {field: text for module, name in known for field, text in _texts(module)[name].items()}


@functools.cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """The text below each field of each class of a module."""
    found: dict[str, dict[str, str]] = {}
    for cls in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(cls, ast.ClassDef):
            own = found[cls.name] = {}
            for field, text in itertools.pairwise(cls.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    raw = ast.literal_eval(text.value)
                    own[ast.unparse(field.target)] = " ".join(raw.split())
    return found
