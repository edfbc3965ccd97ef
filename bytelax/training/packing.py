"""Concatenates documents and cuts them into windows of N + 1 ids that overlap by one id."""

import functools
import hashlib
import sys
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt16, UInt64

from bytelax import vocab
from bytelax.training.documents import Documents


class Stream(NamedTuple):
    """A virtual concatenation of documents in some order, without copying them.

    Attributes:
      ids: the buffer of the documents.
      starts: position in the stream at which each document starts, in stream order, and the length
        of the stream.
      shifts: for each document, the difference between positions in `ids` and in the stream.
    """

    ids: UInt16[np.ndarray, " T"]
    starts: Int64[np.ndarray, "D+1"]
    shifts: Int64[np.ndarray, " D"]


def stream(documents: Documents, order: Int64[np.ndarray, " D"]) -> Stream:
    """Concatenates documents in the given order."""
    starts = np.concatenate([[0], np.cumsum(np.diff(documents.starts)[order])]).astype(np.int64)
    return Stream(documents.ids, starts, documents.starts[order] - starts[:-1])


def cut(source: Stream, begin: int, end: int) -> Int32[np.ndarray, " {end}-{begin}"]:
    """Copies the ids from `begin` up to, but not including, `end`, which must be in the stream."""
    first = np.searchsorted(source.starts, begin, side="right") - 1
    last = np.searchsorted(source.starts, end, side="left")
    bounds = np.clip(source.starts[first : last + 1], begin, end)
    shifts = source.shifts[first:last]
    pieces = [
        source.ids[a:b] for a, b in zip(bounds[:-1] + shifts, bounds[1:] + shifts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int32)


def full_windows(total: int, window: int) -> int:
    """Number of full windows of `window` targets in `total` ids."""
    return max(total - 1, 0) // window


def shuffled(count: int, *key: object) -> Int64[np.ndarray, " {count}"]:
    """A permutation of 0..count - 1 that depends only on `key`, not on machine or versions."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    salt = np.frombuffer(digest, "<u8").astype(np.uint64)
    return np.argsort(_splitmix(np.arange(count, dtype=np.uint64), salt)).astype(np.int64)


def _splitmix(
    index: UInt64[np.ndarray, " n"], salt: UInt64[np.ndarray, "1"]
) -> UInt64[np.ndarray, " n"]:
    """Output number `index` of SplitMix64 (Steele et al., 2014) with seed `salt`: a bijection."""
    mixed = salt + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class TrainWindows:
    """An endless random-access sequence of training windows, epoch after epoch.

    Each epoch concatenates the documents in a new order, and visits the windows cut from them in a
    new order. Of the T ids of a source, floor((T - 1) / N) * N are targets once per epoch: all but
    the first id of the stream (a BOS) and the last (T - 1) mod N, which differ from epoch to epoch.
    Window i depends only on (documents, N, key, i).
    """

    def __init__(self, documents: Documents, window: int, key: tuple):
        self._documents, self._window, self._key = documents, window, key
        self.windows_per_epoch = full_windows(documents.ids.size, window)
        # A batch may contain examples of two epochs.
        self._epoch = functools.lru_cache(maxsize=2)(self._new_epoch)

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> Int32[np.ndarray, " _"]:
        epoch, place = divmod(index, self.windows_per_epoch)
        source, order = self._epoch(epoch)
        begin = int(order[place]) * self._window
        return cut(source, begin, begin + self._window + 1)

    def _new_epoch(self, epoch: int) -> tuple[Stream, Int64[np.ndarray, " _"]]:
        documents = shuffled(self._documents.starts.size - 1, *self._key, epoch, "documents")
        order = shuffled(self.windows_per_epoch, *self._key, epoch, "windows")
        return stream(self._documents, documents), order


class ValidWindows:
    """The validation windows of a source, in order; each id except the first is a target once.

    The last window is padded with BOE, which does not count as a target.
    """

    def __init__(self, documents: Documents, window: int):
        self._ids, self._window = documents.ids, window

    def __len__(self) -> int:
        return -(-max(self._ids.size - 1, 0) // self._window)

    def __getitem__(self, index: int) -> Int32[np.ndarray, " _"]:
        begin = index * self._window
        ids = padding(self._window)
        piece = self._ids[begin : begin + self._window + 1]
        ids[: piece.size] = piece
        return ids


def padding(window: int) -> Int32[np.ndarray, " {window}+1"]:
    """A window that consists of padding only."""
    return np.full(window + 1, vocab.BOE, np.int32)
