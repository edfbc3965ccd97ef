"""`bytelax demo`: shows what the methods of a model write and cost, side by side."""

import dataclasses
import sys
from typing import Annotated

import tyro

from bytelax.commands import flags
from bytelax.options import check_least


@dataclasses.dataclass(frozen=True)
class Demo:
    """Flags of `bytelax demo`."""

    model: flags.Model = "tiny"
    loading: Annotated[flags.QuantizedLoading, tyro.conf.arg(name="")] = flags.QuantizedLoading()
    draft_model: str | None = None
    """A smaller model that drafts for it, named as in --model."""
    max_new_bytes: int = 96
    """Maximum number of bytes to generate for each prompt."""


def run(command: Demo) -> None:
    """Shows the comparison."""
    from bytelax.measure import demo

    check_least(command, 1, "max_new_bytes")
    model = command.loading.load(command.model)
    if sys.stderr.isatty():
        print("compiling a program for each method, once: about a minute", file=sys.stderr)
    settings, notes = demo.settings_of(model, command.draft_model)
    demo.show(demo.compare(model, settings, max_new_bytes=command.max_new_bytes), notes)
