"""`bytelax pack`: cuts training text into documents once."""

import dataclasses
import os
from pathlib import Path

import tyro

from bytelax import progress


@dataclasses.dataclass(frozen=True)
class Pack:
    """Flags of `bytelax pack`."""

    source: tyro.conf.Positional[str]
    """'PATH [valid=..] [separator=..]', as for `bytelax train --data`."""
    out: Path
    """Directory to write, which must not exist. `bytelax train --data OUT` trains on it."""
    valid_fraction: float = 0.01
    """Share of the documents held out for validation, if valid= names no files."""


def run(command: Pack) -> None:
    """Writes the documents."""
    from bytelax.training import documents, packed
    from bytelax.training.configs import DataError, Source

    source = Source.parse(command.source)
    if source.weight != 1:
        raise DataError(f"give weight={source.weight:g} to bytelax train, with the directory")
    if not 0 <= command.valid_fraction < 1:
        raise DataError(f"--valid-fraction must be in [0, 1), not {command.valid_fraction}")
    names = {
        *documents.files(source.path),
        *(documents.files(source.valid) if source.valid else ()),
    }
    size = sum(map(os.path.getsize, names))
    with progress.shown(True, "pack", size) as advance:
        trained, held_out = packed.write(
            command.out, source, valid_fraction=command.valid_fraction, advance=advance
        )
    print(f"{command.out}: {trained:,} bytes to train on and {held_out:,} bytes held out")
