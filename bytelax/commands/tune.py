"""`bytelax tune`: finds the fastest lossless setting for a model on this machine."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.checked import check_least
from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Tune:
    """Flags of `bytelax tune`."""

    data: Path
    """A text with a prompt in each line, like those to be continued."""
    model: flags.Model = "tiny"
    loading: Annotated[flags.DecodingLoading, tyro.conf.arg(name="")] = flags.DecodingLoading()
    draft_model: str | None = None
    """A small model that may draft, named as in --model."""
    batch: int = 1
    """Number of prompts that are decoded together."""
    prompts: int = 16
    """Number of prompts to measure on, evenly spread over the text."""
    max_new_bytes: int = 128
    """Number of bytes to generate for each prompt."""
    longest: int = 16
    """Most bytes to draft in a round, at most 64."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    json: bool = False
    """Print all figures as JSON."""


def run(command: Tune) -> None:
    """Measures, prints what is fastest, and keeps it for `--method tuned`."""
    from bytelax.decode.sampling import Sampling
    from bytelax.measure import tune

    check_least(command, 1, "batch", "prompts", "max_new_bytes", "longest")
    command.loading.check_drafts(command.draft_model is not None)
    Sampling.of(1, temperature=command.temperature)
    many = -(-command.prompts // command.batch) * command.batch
    prompts = tune.prompts_of(command.data.read_bytes(), many)
    found = tune.tune(
        command.loading.load(command.model), prompts, batch=command.batch,
        draft_model=command.draft_model, draft_loading=command.loading.of_drafts,
        max_new_bytes=command.max_new_bytes, temperature=command.temperature,
        longest=command.longest, report=lambda message: print(message, file=sys.stderr),
    )  # fmt: skip
    if command.json:
        print(console.json_line(found.to_dict()))
    else:
        tune.show(found)
