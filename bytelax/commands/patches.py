"""The flags of `bytelax patches`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import Overrides
from bytelax.commands.model_flag import ModelFlag
from bytelax.commands.window_flags import WindowFlags


@dataclasses.dataclass(frozen=True)
class Patches:
    """Cut files into patches by an entropy model, the only part of a BLT that is loaded."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Files, each a text of its own; `-` is standard input, the default."""
    model: ModelFlag = "tiny"
    overrides: Annotated[Overrides, tyro.conf.arg(name="")] = Overrides()
    windows: Annotated[WindowFlags, tyro.conf.arg(name="")] = WindowFlags()
    entropies: bool = False
    """Add the entropy at each byte, in nats, to the JSON."""
    json: bool = False
    """Print a line of JSON for each file, with the length of each patch."""
