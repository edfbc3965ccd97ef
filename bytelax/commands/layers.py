"""The flags of `bytelax layers`."""

import dataclasses
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Layers:
    """Find blocks to skip with `--method layer-skip`, on sample text."""

    text: tyro.conf.Positional[tuple[str, ...]]
    """Files, directories or globs of .txt, .py, .jsonl or .tsv, plain or gzipped."""
    model: ModelFlag = "tiny-lm"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
    temperature: float = 0.0
    """Sampling temperature to optimize for; 0 is greedy."""
    longest: int = 12
    """Maximum number of bytes to draft in a round."""
    most: int | None = None
    """Maximum number of half-blocks (an attention or a SwiGLU) to skip; by default no limit."""
    place_cost: float = 0.0
    """Cost that each drafted byte adds to a verification pass, as a share of that pass."""
    window: int = 256
    """Number of bytes in each window of text that the model reads."""
    max_bytes: int = 8192
    """Approximate number of bytes to measure on, evenly spread over the text."""
    json: bool = False
    """Print all sets of blocks as JSON."""
