"""Configuration of the training text."""

import dataclasses
from typing import Annotated

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from bytelax.training.source import DataError, Source

# tyro cannot parse a tuple of dataclasses, so each source is one argument on the command line.
_SOURCE_ARGUMENTS = PrimitiveConstructorSpec(
    nargs="*",
    metavar="'PATH [weight=..] [valid=..] [separator=..] [template=..]' ..",
    instance_from_str=lambda arguments: tuple(map(Source.parse, arguments)),
    is_instance=lambda value: isinstance(value, tuple),
    str_from_instance=lambda sources: list(map(str, sources)),
)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Training text, and how it is divided into windows and batches."""

    sources: Annotated[
        tuple[Source, ...],
        _SOURCE_ARGUMENTS,
        tyro.conf.arg(name="data", prefix_name=False),
    ] = ()
    """Text to train on: files, directories or globs of .txt and .py (a file is a document), .jsonl
    and .tsv (a line is a document; template= makes its text), plain or .gz. separator= cuts a .txt
    file into documents, and valid= names files to hold out; see docs/training.md."""
    window: int = 1024
    """Number of targets in an example, which has one more id than that."""
    batch: int = 32
    """Number of examples in a step, over all processes."""
    seed: int = 0
    """Seed of the order of documents and windows."""
    valid_fraction: float = 0.01
    """Share of the text held out for validation, in sources without valid=: documents chosen by
    their hash, or the tail of the text if it has too few documents for that."""
    prefetch: int = 4
    """Number of batches that a thread reads ahead; 0 reads each batch when it is needed."""

    def __post_init__(self):
        for name, least in (("window", 1), ("batch", 1), ("prefetch", 0)):
            if getattr(self, name) < least:
                raise DataError(f"data.{name} must be at least {least}, not {getattr(self, name)}")
        if not 0 <= self.valid_fraction < 1:
            raise DataError(f"data.valid_fraction must be in [0, 1), not {self.valid_fraction}")
