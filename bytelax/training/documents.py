"""Reads text files as documents `BOS bytes EOS`, packed into one buffer of ids per source."""

import functools
import glob
import gzip
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt16

from bytelax import vocab
from bytelax.training.configs import DataError, Source

SUFFIXES = (".txt", ".py", ".jsonl")
_TAIL = 16_384  # ids; fewer are too few to validate on


class Documents(NamedTuple):
    """Documents in one buffer: document d is `ids[starts[d]:starts[d + 1]]`, with BOS and EOS."""

    ids: UInt16[np.ndarray, " T"]
    starts: Int64[np.ndarray, "D+1"]

    @property
    def bytes(self) -> int:
        """Number of bytes, without BOS and EOS."""
        return len(self.ids) - 2 * (len(self.starts) - 1)


def pack(texts: Sequence[bytes]) -> Documents:
    """Packs texts into one buffer of documents."""
    starts = np.cumsum([0, *(len(text) + 2 for text in texts)], dtype=np.int64)
    buffer = b"".join(b" %b " % text for text in texts)
    ids = np.frombuffer(buffer, np.uint8).astype(np.uint16) + np.uint16(vocab.OFFSET)
    ids[starts[:-1]] = vocab.BOS
    ids[starts[1:] - 1] = vocab.EOS
    return Documents(ids, starts)


@functools.lru_cache(maxsize=64)
def load(source: Source, valid_fraction: float) -> tuple[Documents, Documents]:
    """Loads the training and the validation documents of a source.

    If `source.valid` is empty, a document is held out if the hash of its bytes falls into a share
    `valid_fraction` of all hashes. The split therefore does not depend on other files or on other
    sources, and copies of a text are in the same split.
    If no document is held out by that, or every one, because there are too few, the tail of the
    text is: a share `valid_fraction` or 16 KB, whichever is more, but at most a tenth.
    Results are cached, so each source is read once per process.
    """
    parts = list(by_file(source, valid_fraction))
    train = _join(train for _, train, _ in parts)
    held_out = _join(held for _, _, held in parts)
    if not valid_fraction or source.valid or (train.ids.size and held_out.ids.size):
        return train, held_out
    text = _join([train, held_out])  # one of the two is empty
    tail = min(max(int(valid_fraction * text.ids.size), _TAIL), text.ids.size // 10)
    return _without_tail(text, tail) if tail else (text, pack([]))


def by_file(source: Source, valid_fraction: float) -> Iterator[tuple[str, Documents, Documents]]:
    """Iterates over the files of a source: the name, the documents to train on, those held out."""
    cut = re.compile(source.separator.encode(), re.MULTILINE)
    held = {os.path.realpath(file): file for file in files(source.valid)} if source.valid else {}
    fraction = 0.0 if source.valid else valid_fraction
    for file in files(source.path):
        if os.path.realpath(file) not in held:
            yield file, *_split(file, cut, fraction)
    for file in held.values():
        inside, outside = _split(file, cut, 0.0)
        yield file, outside, inside


def _without_tail(texts: Documents, tail: int) -> tuple[Documents, Documents]:
    """Splits off about the last `tail` ids. A document at the cut is divided after a line."""
    cut = texts.ids.size - tail
    index = int(np.searchsorted(texts.starts, cut, side="right")) - 1
    begin, end = texts.starts[index : index + 2]
    divided = (texts.ids[begin + 1 : end - 1] - vocab.OFFSET).astype(np.uint8).tobytes()
    place = max(int(cut - begin) - 1, 0)
    place = divided.rfind(b"\n", 0, place) + 1 or place
    first, second = (pack([part] if part else []) for part in (divided[:place], divided[place:]))
    before = Documents(texts.ids[:begin], texts.starts[: index + 1])
    after = Documents(texts.ids[end:], texts.starts[index + 1 :] - end)
    return _join([before, first]), _join([second, after])


def files(path: str) -> list[str]:
    """Lists the files that a path matches: a file, a directory or a glob, in a fixed order."""
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        path = os.path.join(glob.escape(path), "**", "*")
        found = [x for x in glob.glob(path, recursive=True) if _suffix(x) in SUFFIXES]
    else:
        found = [path] if os.path.exists(path) else glob.glob(path, recursive=True)
    if not found:
        raise DataError(f"{path}: no such file of {', '.join(SUFFIXES)}, plain or .gz")
    for file in found:
        if _suffix(file) not in SUFFIXES:
            raise DataError(f"{file} is none of {', '.join(SUFFIXES)}, plain or .gz")
    return sorted(filter(os.path.isfile, found))


def _suffix(file: str) -> str:
    return os.path.splitext(file.removesuffix(".gz"))[1]


def _split(file: str, cut: re.Pattern[bytes], fraction: float) -> tuple[Documents, Documents]:
    """Packs the documents of a file, separately for training and for validation."""
    sides: tuple[list[bytes], list[bytes]] = ([], [])
    for text in _texts(file, cut):
        if text.strip():
            sides[_is_held_out(text, fraction)].append(text)
    return pack(sides[False]), pack(sides[True])


def _is_held_out(text: bytes, fraction: float) -> bool:
    if not fraction:
        return False
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "little") < fraction * 2**64


def _join(parts: Iterable[Documents]) -> Documents:
    parts = [pack([]), *parts]
    lengths = np.concatenate([np.diff(part.starts) for part in parts])
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Documents(np.concatenate([part.ids for part in parts]), starts)


def _texts(file: str, cut: re.Pattern[bytes]) -> Iterator[bytes]:
    """Iterates over the documents of a file."""
    try:
        with gzip.open(file) if file.endswith(".gz") else open(file, "rb") as handle:
            content = handle.read()
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read: {error}") from None
    if _suffix(file) == ".jsonl":
        yield from _rows(file, content)
    elif _suffix(file) == ".txt" and cut.pattern:
        cuts = itertools.chain.from_iterable(match.span() for match in cut.finditer(content))
        bounds = [0, *cuts, len(content)]
        for begin, end in zip(bounds[::2], bounds[1::2], strict=True):
            yield content[begin:end]
    else:
        yield content


def _rows(file: str, content: bytes) -> Iterator[bytes]:
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            try:
                yield json.loads(line)["text"].encode()
            except (ValueError, LookupError, AttributeError, TypeError) as error:
                raise DataError(f'{file}:{number}: not a line {{"text": ...}}: {error}') from None
