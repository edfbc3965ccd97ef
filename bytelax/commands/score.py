"""The flags of `bytelax score`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Score:
    """Score files: bits per byte under a model, of each and of all."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: ModelFlag = "tiny"
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    window: int | None = None
    """Most bytes that the model sees at once; by default 1023, or its context if shorter."""
    stride: int | None = None
    """Bytes by which windows move along a longer text; by default half of the window."""
    batch: int = 8
    """Windows that are scored together."""
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, and one for all of them."""
