"""The flags of `bytelax convert`."""

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

import tyro

from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Convert:
    """Write a model in another layout: of transformers, or bytelax's own."""

    model: ModelFlag
    out: Path
    """Directory to write; it must not exist, or be empty."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    to: Literal["orbax", "huggingface"] = "orbax"
    """Layout to write."""
    json: bool = False
    """Print a summary as JSON."""
