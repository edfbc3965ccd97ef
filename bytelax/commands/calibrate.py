"""The flags of `bytelax calibrate`."""

import dataclasses

import tyro

from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """Find the entropy threshold at which patches have a given mean length."""

    text: tyro.conf.Positional[tuple[str, ...]]
    """Files, directories or globs of .txt, .py, .jsonl or .tsv, plain or gzipped."""
    model: ModelFlag = "tiny"
    patch_length: float = 4.5
    """Target mean number of bytes per patch."""
    max_patch_length: int | None = None
    """Longer patches are cut to this many bytes; by default as in the config of the BLT."""
    window: int = 1024
    """Number of bytes in each window that the entropy model reads, as in training."""
    max_bytes: int = 2_000_000
    """Approximate number of bytes to measure on, evenly spread over the text."""
    write: bool = False
    """Write the threshold, and --max-patch-length if given, to the config of the BLT."""
    json: bool = False
    """Print the result as JSON."""
