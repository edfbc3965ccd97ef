"""The flags of `bytelax score`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.model_flag import ModelFlag
from bytelax.commands.window_flags import WindowFlags


@dataclasses.dataclass(frozen=True)
class Score:
    """Score files: bits per byte under a model, of each and of all."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: ModelFlag = "tiny"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
    windows: Annotated[WindowFlags, tyro.conf.arg(name="")] = WindowFlags()
    logprobs: bool = False
    """Add the log-probability of each byte to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, and one for all of them."""
