"""The flags of `bytelax demo`."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro

from bytelax.commands.load_flags import DecodeLoadFlags
from bytelax.commands.model_flag import ModelFlag


@dataclasses.dataclass(frozen=True)
class Demo:
    """Continue prompts by plain decoding and with drafts, each byte with its origin."""

    model: ModelFlag = "tiny"
    loading: Annotated[DecodeLoadFlags, tyro.conf.arg(name="")] = DecodeLoadFlags()
    max_new_bytes: int = 96
    """Maximum number of bytes to generate for each prompt."""
    html: Path | None = None
    """Write the comparison to this file, as a self-contained HTML page."""
    json: bool = False
    """Print the results as JSON."""
