"""What commands print, as JSON and while they wait, and the text files that they read."""

import contextlib
import dataclasses
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


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A file that can be read and is not empty.

    Attributes:
      name: name of the file as given.
      size: size in bytes.
      held: content that has been read already: that of standard input.
    """

    name: str
    size: int
    held: bytes | None = None

    def read(self) -> bytes:
        """Returns the content of the file."""
        return Path(self.name).read_bytes() if self.held is None else self.held


def text_files(paths: Sequence[Path]) -> list[TextFile]:
    """Checks that all files can be read.

    Args:
      paths: paths of files; `-` is standard input, which is also read without any path.

    Raises:
      OSError: a file cannot be opened.
      ValueError: a file is empty, or not a regular file.
    """
    return [_checked(str(path)) for path in paths or ("-",)]


def _checked(name):
    if name == "-":
        if sys.stdin is None:
            raise ValueError("standard input is closed: name a file")
        held = sys.stdin.buffer.read()
        found = TextFile("standard input", len(held), held)
    else:
        path = Path(name)
        if path.is_dir():
            raise ValueError(f"{name} is a directory; name the files in it")
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise ValueError(f"{name} is not a file; give it as standard input")
        with path.open("rb"):
            found = TextFile(name, path.stat().st_size)
    if not found.size:
        raise ValueError(f"{found.name} is empty: there is nothing to read")
    return found
