"""Text files that a command reads, checked before a model is loaded."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

_STDIN = "-"


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
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise ValueError(f"{name} is not a file; give it as standard input")
        with path.open("rb"):
            found = TextFile(name, path.stat().st_size)
    if not found.size:
        raise ValueError(f"{found.name} is empty: there is nothing to read")
    return found
