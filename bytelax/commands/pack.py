"""The flags of `bytelax pack`."""

import dataclasses
from pathlib import Path

import tyro


@dataclasses.dataclass(frozen=True)
class Pack:
    """Cut training text into documents once, for hosts that read only what they train on."""

    source: tyro.conf.Positional[str]
    """'PATH [valid=..] [separator=..] [template=..]', as for `bytelax train --data`."""
    out: Path
    """Directory to write, which must not exist. `bytelax train --data OUT` trains on it."""
    valid_fraction: float = 0.01
    """Share of the documents held out for validation, if valid= names no files."""
