"""`bytelax pack`: cuts training text into documents once."""

import os

from bytelax.commands.pack import Pack
from bytelax.commands.progress_bar import progress_bar
from bytelax.training import documents, packed
from bytelax.training.source import DataError, Source


def run(flags: Pack) -> None:
    source = Source.parse(flags.source)
    if source.weight != 1:
        raise DataError(f"give weight={source.weight:g} to bytelax train, with the directory")
    if not 0 <= flags.valid_fraction < 1:
        raise DataError(f"--valid-fraction must be in [0, 1), not {flags.valid_fraction}")
    names = {
        *documents.files(source.path),
        *(documents.files(source.valid) if source.valid else ()),
    }
    size = sum(map(os.path.getsize, names))
    with progress_bar("pack", size) as advance:
        trained, held_out = packed.write(
            flags.out, source, valid_fraction=flags.valid_fraction, advance=advance
        )
    print(f"{flags.out}: {trained:,} bytes to train on and {held_out:,} bytes held out")
