"""The flags of `bytelax bench`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.method_flags import check_name
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Bench:
    """Time decoding methods against plain decoding, in alternating runs in one process."""

    settings: tyro.conf.Positional[tuple[str, ...]] = ()
    """Methods to time, as METHOD or METHOD:option=value,...; by default those of `bytelax demo`."""
    model: ModelFlag = "tiny"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file whose whole text is a prompt; by default three built-in prompts."""
    max_new_bytes: int = 256
    """Number of bytes to generate for each prompt."""
    batch: int = 1
    """Number of prompts in a batch; prompts are repeated to fill the last batch."""
    repeats: int = 5
    """Number of pairs of runs; reported speeds are medians of their ratios."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    json: bool = False
    """Print all results as JSON."""

    def __post_init__(self):
        for setting in self.settings:  # before anything is loaded
            check_name(setting.partition(":")[0])
