"""Reads data sets from files of text lines or JSON lines, plain or gzipped."""

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")


def lines(path: Path) -> list[str]:
    """Returns the lines of a text file, or of `path`.gz if `path` does not exist.

    Raises:
      OSError: neither file exists, or it cannot be read.
      ValueError: the file is truncated or is not text.
    """
    zipped = path.with_name(f"{path.name}.gz")
    if zipped.exists() and not path.exists():
        path = zipped
    content = path.read_bytes()
    try:
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: {error}") from None
    # `splitlines` would also split at Unicode line ends within a sentence or a JSON string.
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def records(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a `.jsonl` file.

    Raises:
      ValueError: a line is not a JSON object; the message says which one.
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
    """Returns `count` of the items, evenly spread and in order; all of them if None or too few.

    Data sets are often sorted by length or by subject, so their first items would be biased.
    """
    if count is None or count >= len(items):
        return tuple(items)
    return tuple(items[index * len(items) // count] for index in range(count))
