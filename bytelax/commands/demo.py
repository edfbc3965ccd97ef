"""`bytelax demo`: shows what the methods of a model write and cost, side by side."""

import dataclasses
import sys
from typing import Annotated

import tyro

from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Demo:
    """Flags of `bytelax demo`."""

    model: flags.Model = "tiny"
    loading: Annotated[flags.QuantizedLoading, tyro.conf.arg(name="")] = flags.QuantizedLoading()
    max_new_bytes: int = 96
    """Maximum number of bytes to generate for each prompt."""
    json: bool = False
    """Print the results as JSON."""


def run(command: Demo) -> None:
    """Shows the comparison."""
    import jax

    from bytelax.measure import terminal
    from bytelax.measure.comparison import PROMPTS, STOP, compare, to_json

    if command.max_new_bytes < 1:
        raise ValueError(f"max_new_bytes must be at least 1, got {command.max_new_bytes}")
    model = command.loading.load(command.model)
    if sys.stderr.isatty():
        print("compiling a program for each method, once: about a minute", file=sys.stderr)
    comparison = compare(model, PROMPTS, max_new_bytes=command.max_new_bytes, stop=STOP)
    if command.json:
        print(console.json_line(to_json(comparison)))
    else:
        terminal.show(comparison, platform=jax.default_backend())
