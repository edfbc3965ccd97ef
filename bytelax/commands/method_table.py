"""The named methods and their options, read from a file so that flags need no JAX.

The file is what `bytelax methods --json` prints, which is made from the factories in
`bytelax.methods`. A test compares the two.
"""

import functools
import importlib.resources
import json
from typing import Literal, NamedTuple

FILE = "methods.json"
Kind = Literal["int", "float", "bool", "ints", "str"]


class OptionRow(NamedTuple):
    """An option of a method.

    Attributes:
      name: keyword of the factory.
      kind: type of its values on the command line.
      default: the default; None if there is none, or if it depends on the model.
      needed: whether it must be given.
      choices: allowed words; empty if any value of the type is allowed.
      help: description.
    """

    name: str
    kind: Kind
    default: object
    needed: bool
    choices: list[str]
    help: str


class MethodRow(NamedTuple):
    """A named method: its description in a line, and its options."""

    name: str
    description: str
    options: list[OptionRow]


@functools.cache
def methods() -> tuple[MethodRow, ...]:
    """Returns all named methods, in the order of `bytelax.methods.METHODS`."""
    text = importlib.resources.files("bytelax.commands").joinpath(FILE).read_text("utf-8")
    return tuple(
        MethodRow(
            row["name"], row["description"], [OptionRow(**option) for option in row["options"]]
        )
        for row in json.loads(text)
    )
