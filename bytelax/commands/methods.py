"""`bytelax methods`: lists the decoding methods and their options."""

import dataclasses
import inspect
import json
import types
from typing import Any, get_args


@dataclasses.dataclass(frozen=True)
class Methods:
    """Flags of `bytelax methods`."""

    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print the reference as Markdown, as in docs/methods.md."""


def run(command: Methods) -> None:
    """Prints the table, or the reference."""
    if command.markdown:
        print(markdown(), end="")
        return
    if command.json:
        print(json.dumps(table(), indent=1))
        return
    for row in table():
        options = ", ".join(option["name"] for option in row["options"])
        print(f"{row['name']:14}{row['description']} Options: {options}.")


def table() -> list[dict[str, Any]]:
    """Returns all methods and their options, as `commands.method_table` reads them."""
    from bytelax.methods import METHODS, options_of

    return [
        {
            "name": name,
            "description": _doc(name)[0],
            "options": [_option(*item) for item in options_of(name).items()],
        }
        for name in METHODS
    ]


def _option(name: str, parameter: inspect.Parameter) -> dict[str, Any]:
    from bytelax.options import option_of

    told = option_of(parameter)
    needed = parameter.default is inspect.Parameter.empty
    return {
        "name": name,
        "kind": _kind(get_args(parameter.annotation)[0], told),
        "default": None if needed else parameter.default,
        "needed": needed,
        "choices": list(told.choices),
        "help": told.help,
    }


def _kind(hint, told) -> str:
    """The type of an option on the command line."""
    if told.choices:
        return "str"
    kinds = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for kind, name in ((bool, "bool"), (int, "int"), (float, "float")):
        if kind in kinds:
            return name
    return "ints" if any(tuple in (x, getattr(x, "__origin__", None)) for x in kinds) else "str"


def markdown() -> str:
    """Generates the reference of all methods and options as Markdown."""
    from bytelax.methods import METHODS, options_of
    from bytelax.options import option_of

    lines = ["# Methods", "", "Made by `bytelax methods --markdown`.", ""]
    lines.append(
        "With any of them `window=W` pads windows to W bytes: [exactness.md](exactness.md)."
    )
    for name in METHODS:
        lines += ["", f"## {name}", "", *_doc(name), "", "| option | default | |", "|---|---|---|"]
        for option, parameter in options_of(name).items():
            told = option_of(parameter)
            choices = f" One of {', '.join(told.choices)}." if told.choices else ""
            default = (
                "needed" if parameter.default is inspect.Parameter.empty else parameter.default
            )
            lines.append(f"| `{option}` | {default} | {told.help}{choices} |")
    return "\n".join(lines) + "\n"


def _doc(name: str) -> list[str]:
    from bytelax.methods import METHODS

    return (inspect.getdoc(METHODS[name]) or "").splitlines()
