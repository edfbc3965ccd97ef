"""Packed text: a source that is cut into documents once, and then memory-mapped.

A process reads only the windows that it trains on, and a host's memory holds no more of the text
than the system keeps. A directory has two files for each split, little-endian: `train.ids`, uint16,
the ids of all documents one after another, and `train.starts`, int64, where each document starts,
and where the last one ends.
"""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable

import numpy as np

from bytelax.training import documents
from bytelax.training.configs import DataError, Source
from bytelax.training.documents import Documents

_SPLITS = ("train", "valid")


def is_packed(path: str) -> bool:
    """Whether a path is a directory that `write` has written."""
    return os.path.exists(os.path.join(os.path.expanduser(path), "train.ids"))


def read(path: str) -> tuple[Documents, Documents]:
    """The training and the validation documents of a packed directory, mapped into memory.

    Raises:
      DataError: the directory is not whole.
    """
    directory = pathlib.Path(path).expanduser()

    def mapped(name, dtype):
        file = directory / name
        try:
            return np.memmap(file, dtype, "r") if file.stat().st_size else np.zeros(0, dtype)
        except (OSError, ValueError) as error:
            raise DataError(f"{file}: cannot be read: {error}") from None

    train, valid = (
        Documents(mapped(f"{split}.ids", "<u2"), mapped(f"{split}.starts", "<i8"))
        for split in _SPLITS
    )
    for split, part in zip(_SPLITS, (train, valid), strict=True):
        if not part.starts.size or part.starts[-1] != part.ids.size:
            raise DataError(f"{directory}: {split}.ids and {split}.starts do not belong together")
    return train, valid


def write(
    directory: pathlib.Path,
    source: Source,
    *,
    valid_fraction: float,
    advance: Callable[[int], object] | None = None,
) -> tuple[int, int]:
    """Packs a source file by file, with one file in memory at a time.

    Batches of the directory are those of the source, bit for bit.

    Args:
      directory: output directory; created when all files are packed.
      source: files, how they divide into documents, and which are held out. Its weight stays with
        whoever trains on the directory.
      valid_fraction: share of the documents that is held out if `source.valid` names no files.
      advance: called with the size of each file that has been packed.

    Returns:
      The number of bytes to train on, and of those held out.

    Raises:
      DataError: the directory exists, the source cannot be read, or all or none of it is held out.
    """
    if directory.exists():
        raise DataError(f"{directory} exists: name a new directory")
    unfinished = directory.with_name(f"{directory.name}.partial")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    ends, counts = [0, 0], [0, 0]
    with contextlib.ExitStack() as opened:
        ids, starts = (
            [opened.enter_context(open(unfinished / f"{split}.{kind}", "wb")) for split in _SPLITS]
            for kind in ("ids", "starts")
        )
        for file in starts:
            file.write(np.zeros(1, "<i8").tobytes())
        for name, *parts in documents.by_file(source, valid_fraction):
            for side, part in enumerate(parts):
                ids[side].write(part.ids.astype("<u2").tobytes())
                starts[side].write((part.starts[1:] + ends[side]).astype("<i8").tobytes())
                ends[side] += part.ids.size
                counts[side] += part.bytes
            if advance is not None:
                advance(os.path.getsize(name))
    if not any(counts):
        shutil.rmtree(unfinished)
        raise DataError(f"{source.path}: there is no text in it")
    if not all(counts) and (valid_fraction or source.valid):
        shutil.rmtree(unfinished)
        raise DataError(
            f"{source.path}: {'no' if counts[0] else 'every'} document is held out: name files by "
            "valid=, cut the text by separator=, or set --valid-fraction 0"
        )
    unfinished.rename(directory)
    return counts[0], counts[1]
