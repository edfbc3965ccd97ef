"""Documents end to end, cut into windows of N + 1 ids that overlap by one."""

import functools
import hashlib
import sys
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32, Int64, UInt16, UInt64

from bytelax import vocab
from bytelax.training.documents import Documents


class Stream(NamedTuple):
    """Documents end to end in some order.

    Attributes:
      ids: the buffer of the documents.
      starts: where in the stream each document begins, in stream order, and the stream's end.
      shifts: what to add to a position in the stream for the place in `ids`, document by document.
    """

    ids: UInt16[np.ndarray, " T"]
    starts: Int64[np.ndarray, "D+1"]
    shifts: Int64[np.ndarray, " D"]


def stream(documents: Documents, order: Int64[np.ndarray, " D"]) -> Stream:
    """The documents end to end in `order`."""
    starts = np.concatenate([[0], np.cumsum(np.diff(documents.starts)[order])]).astype(np.int64)
    return Stream(documents.ids, starts, documents.starts[order] - starts[:-1])


def cut(source: Stream, begin: int, end: int) -> Int32[np.ndarray, " {end}-{begin}"]:
    """The ids at `begin` to `end` (excluded) of a stream, which has no fewer than `end`."""
    first = np.searchsorted(source.starts, begin, side="right") - 1
    last = np.searchsorted(source.starts, end, side="left")
    bounds = np.clip(source.starts[first : last + 1], begin, end)
    shifts = source.shifts[first:last]
    pieces = [
        source.ids[a:b] for a, b in zip(bounds[:-1] + shifts, bounds[1:] + shifts, strict=True)
    ]
    return np.concatenate(pieces).astype(np.int32)


def full_windows(total: int, window: int) -> int:
    """How many windows of `window` targets `total` ids fill."""
    return max(total - 1, 0) // window


def shuffled(count: int, *key: object) -> Int64[np.ndarray, " {count}"]:
    """0 to `count` - 1 in an order that is a function of `key` alone, on every machine for ever."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    salt = np.frombuffer(digest, "<u8").astype(np.uint64)
    return np.argsort(_splitmix(np.arange(count, dtype=np.uint64), salt)).astype(np.int64)


def _splitmix(
    index: UInt64[np.ndarray, " n"], salt: UInt64[np.ndarray, "1"]
) -> UInt64[np.ndarray, " n"]:
    """Number `index` of SplitMix64 (Steele et al., 2014) seeded with `salt`: a bijection."""
    mixed = salt + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


class TrainWindows:
    """The windows of a source, epoch after epoch without end, by their index.

    In every epoch the documents stand end to end in another order, and the windows cut from them
    come in another order. Of the T ids of a source an epoch has floor((T - 1) / N) * N as targets,
    each once: all but the stream's first (a BOS) and the last (T - 1) mod N, which are others in
    every epoch. Window i is a function of (documents, N, key, i).
    """

    def __init__(self, documents: Documents, window: int, key: tuple):
        self._documents, self._window, self._key = documents, window, key
        self.windows_per_epoch = full_windows(documents.ids.size, window)
        # Examples of a batch may stand on both sides of an epoch's end.
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
    """The windows of a source once, in order; the last is padded with BOE, which is no target.

    Every id but the first (a BOS) is a target once.
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
    """A window without targets."""
    return np.full(window + 1, vocab.BOE, np.int32)
