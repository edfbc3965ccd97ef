"""The flags of `bytelax eval`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.method_flags import MethodFlags
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Eval:
    """Score a model on tasks: translation, code generation, multiple choice."""

    tasks: tyro.conf.Positional[tuple[str, ...]]
    """Tasks, as NAME or NAME=PATH: arc-easy, arc-challenge, piqa, hellaswag, mmlu,
    tatoeba-deu-eng, tatoeba-fra-eng, flores-deu-eng, flores-fra-eng, humaneval, mbpp."""
    data: Path = Path(".")
    """Directory of the data sets of tasks without a PATH; see docs/evaluation.md."""
    model: ModelFlag = "tiny"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
    limit: int | None = None
    """Maximum number of examples of each task, evenly spread; all by default."""
    shots: int | None = None
    """Number of solved examples in each prompt; by default as published."""
    max_new_bytes: int | None = None
    """Maximum number of bytes in an answer; each task has its own default."""
    batch: int = 1
    """Number of prompts in a batch."""
    decoding: Annotated[MethodFlags, tyro.conf.arg(name="")] = MethodFlags()
    seed: int = 0
    """Random seed; example i is sampled with seed + i."""
    out: Path | None = None
    """A file of JSON lines to keep every answer; an interrupted run resumes from it."""
    json: bool = False
    """Print all results as JSON."""
