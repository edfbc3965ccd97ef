"""What commands print, as JSON and while they wait, and the text files that they read."""

import contextlib
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def json_line(value: Any) -> str:
    """Formats a value as one line of JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), allow_nan=False)


def check_json(flags: Any, name: str) -> None:
    """Raises a ValueError if the flag of this name is given without `--json`."""
    if vars(flags)[name] and not flags.json:
        raise ValueError(f"--{name} is printed as JSON only: add --json")


def waiting(what: str) -> contextlib.AbstractContextManager:
    """Shows on standard error what the body does, while it does it, if that is a terminal."""
    import rich.console

    console = rich.console.Console(stderr=True)
    return console.status(what) if console.is_terminal else contextlib.nullcontext()


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_texts(paths: Sequence[Path]) -> dict[str, bytes]:
    """Reads files by name; `-` is standard input, which is also read without any path."""
    return {
        str(path): sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        for path in paths or (Path("-"),)
    }
