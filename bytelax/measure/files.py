"""Data sets as files: lines of text or of JSON, plain or gzipped."""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")


def lines(path: Path) -> list[str]:
    """The lines of a text file; of `path`.gz where there is no `path`.

    Raises:
      OSError: neither is there, or cannot be read.
      ValueError: it is no text, or not whole.
    """
    zipped = path.with_name(f"{path.name}.gz")
    if zipped.exists() and not path.exists():
        path = zipped
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    # Not `splitlines`: a sentence, or a string of JSON, may hold Unicode's other line ends.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def records(path: Path) -> list[dict[str, Any]]:
    """The objects of a `.jsonl` file.

    Raises:
      ValueError: a line that is no object; the message says which.
    """
    found = []
    for number, line in enumerate(lines(path), 1):
        try:
            record = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"{path}:{number}: invalid JSON: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"{path}:{number}: the line is no JSON object")
        found.append(record)
    return found


def spread(items: Sequence[Item], count: int | None) -> tuple[Item, ...]:
    """So many of the items, evenly spread, in order; all of them if None or too few.

    Data sets are often sorted, by length or by subject.
    """
    if count is None or count >= len(items):
        return tuple(items)
    return tuple(items[index * len(items) // count] for index in range(count))
