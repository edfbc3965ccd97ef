"""Files of text that a command reads, each as a whole and one at a time."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

_STDIN = "-"


@dataclasses.dataclass(frozen=True)
class TextFile:
    """A file that is there and holds something.

    Attributes:
      name: as it was given.
      size: in bytes.
      held: what has been read of it already, which is all of standard input.
    """

    name: str
    size: int
    held: bytes | None = None

    def read(self) -> bytes:
        return Path(self.name).read_bytes() if self.held is None else self.held


def text_files(paths: Sequence[Path]) -> list[TextFile]:
    """Makes sure, before a model is loaded, that all files can be read.

    Args:
      paths: `-` is standard input, and so is no path at all.

    Raises:
      OSError: one cannot be opened.
      ValueError: one is empty, or not a file.
    """
    return [_checked(str(path)) for path in paths or (_STDIN,)]


def _checked(name):
    if name == _STDIN:
        if sys.stdin is None:
            raise ValueError("standard input is closed: name a file")
        held = sys.stdin.buffer.read()
        found = TextFile("standard input", len(held), held)
    else:
        path = Path(name)
        if path.is_dir():
            raise ValueError(f"{name} is a directory; name the files in it")
        if path.exists() and not path.is_file():  # to open a pipe would be to wait
            raise ValueError(f"{name} is not a file; give it as standard input")
        with path.open("rb"):
            found = TextFile(name, path.stat().st_size)
    if not found.size:
        raise ValueError(f"{found.name} is empty: there is nothing to read")
    return found
