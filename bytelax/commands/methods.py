"""`bytelax methods`: lists the decoding methods and their options."""

import dataclasses
import inspect

from bytelax.commands.json_line import json_line
from bytelax.methods import METHODS, options_of
from bytelax.options import option_of


@dataclasses.dataclass(frozen=True)
class Methods:
    """List the decoding methods and their options."""

    json: bool = False
    """Print JSON."""
    markdown: bool = False
    """Print the reference as Markdown, as in docs/methods.md."""

    def run(self) -> None:
        """Runs the command."""
        if self.markdown:
            print(markdown(), end="")
            return
        rows = [
            {"name": name, "description": _doc(name)[0], "options": list(options_of(name))}
            for name in METHODS
        ]
        if self.json:
            print(json_line(rows))
            return
        for row in rows:
            options = ", ".join(row["options"])
            print(f"{row['name']:14}{row['description']} Options: {options}.")


def markdown() -> str:
    """Generates the reference of all methods and options as Markdown."""
    lines = ["# Methods", "", "Made by `bytelax methods --markdown`."]
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
    return (inspect.getdoc(METHODS[name]) or "").splitlines()
