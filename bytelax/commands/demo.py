"""`bytelax demo`: shows plain and drafted decoding side by side."""

import dataclasses
from typing import Annotated

import tyro

from bytelax.checked import check_least
from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Demo:
    """Flags of `bytelax demo`."""

    model: flags.Model = "small-lm"
    loading: Annotated[flags.DecodingLoading, tyro.conf.arg(name="")] = flags.DecodingLoading(
        draft_quantize="int8"  # each round reads it from memory again
    )
    draft_model: str | None = None
    """A smaller model that drafts, named as in --model; by default small-draft for small-lm, and
    otherwise what the model has itself."""
    max_new_bytes: int = 96
    """Maximum number of bytes to generate for each prompt."""


def run(command: Demo) -> None:
    """Shows the comparison."""
    from bytelax.loading import load
    from bytelax.measure import demo
    from bytelax.measure.timing import Contestant

    check_least(command, 1, "max_new_bytes")
    model = command.loading.load(command.model)
    small = command.draft_model or ("small-draft" if command.model == "small-lm" else None)
    drafted = None
    if small is not None:
        drafts = load(small, **command.loading.of_drafts)
        drafted = Contestant("draft-model", {"draft_model": drafts, "draft_length": 8})
    with console.waiting("compiling, once, and timing both"):
        runs = demo.compare(model, drafted, new=command.max_new_bytes)
    demo.show(*runs)
