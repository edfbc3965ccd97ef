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

_USE = """\
Made by `bytelax methods --markdown`. A method is chosen by `--method blt-s --draft-length 4` on the
command line, and in `bytelax.generate` by `method="blt-s", draft_length=4` or by its class, which
an editor completes: `method=bytelax.options.BltS(draft_length=4)`.
With any method `window=W` pads windows to W bytes: [same_bytes.md](same_bytes.md).
"""

_ANY, _BYTES, _BLT = "any model", "a byte transformer", "a BLT"
# Which models a method runs on, and what has to be trained for it.
_NEEDS = {
    "ar": (_ANY, ""),
    "tuned": (_ANY, ""),
    "lookup": (_ANY, ""),
    "draft-model": (_ANY, "a small model"),
    "spectr": (_BYTES, "a small model"),
    "blt-s": (_BLT, "for predicted latents a head"),
    "blt-d": (_BLT, "the model, to fill blocks"),
    "blt-dv": (_BLT, "the model, to fill blocks"),
    "early-exit": (_BYTES, ""),
    "layer-skip": (_BYTES, ""),
    "medusa": (_ANY, "heads; trees for byte transformers alone"),
    "two-byte": (_BYTES, "heads"),
    "composed": (_BYTES, "heads"),
    "eagle": (_ANY, "heads; trees for byte transformers alone"),
    "dflash": (_ANY, "heads"),
}


@dataclasses.dataclass(frozen=True)
class Methods:
    """Flags of `bytelax methods`."""

    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print the reference as Markdown, as in docs/methods.md."""


def run(command: Methods) -> None:
    """Prints the table, or the reference."""
    if command.json and command.markdown:
        raise ValueError("--json and --markdown exclude each other")
    if command.markdown:
        print(markdown(), end="")
        return
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
            "description": f"{_doc(method)[0]} {_law(method)}",
            "options": [_option(method, field) for field in dataclasses.fields(method)],
        }
        for name, method in METHODS.items()
    ]


def markdown() -> str:
    """Generates the reference of all methods and options as Markdown."""
    lines = ["# Methods", "", *_USE.splitlines(), ""]
    lines += [
        "| method | class | runs on | has to be trained | lossless |",
        "|---|---|---|---|---|",
    ]
    for name, method in METHODS.items():
        runs_on, trained = _NEEDS[name]
        lossless = "yes" if method.lossless else "**no**"
        cells = f"[`{name}`](#{name})", f"`{method.__name__}`", runs_on, trained, lossless
        lines.append(f"| {' | '.join(cells)} |")
    for row in table():
        more = _doc(METHODS[row["name"]])[1:]
        lines += ["", f"## {row['name']}", "", row["description"], *more]
        if row["options"]:
            lines.append("")
        for option in row["options"]:
            choices = f" One of {', '.join(option['choices'])}." if option["choices"] else ""
            default = "" if option["needed"] else f" = {option['default']}"
            lines.append(f"- `{option['name']}{default}`: {option['help']}{choices}")
    return "\n".join(lines) + "\n"


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


def _law(method: type[Options]) -> str:
    return "Lossless." if method.lossless else "Not lossless."


def _doc(method: type[Options]) -> list[str]:
    return (inspect.getdoc(method) or "").splitlines()


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
                    told = ast.literal_eval(text.value)
                    own[ast.unparse(field.target)] = " ".join(told.split())
    return found
