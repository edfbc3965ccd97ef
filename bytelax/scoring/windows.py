"""Runs a model over texts of any length, in batches of windows, with results for each byte.

A text that is longer than a window is read in overlapping windows. Their positions depend on the
length of the text only, and the results for a byte depend only on the bytes up to it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int, Shaped

from bytelax import vocab

_DEFAULT = 1023  # bytes; with the BOS a power of two
_SMALLEST = 64  # ids; rows are padded to powers of two from here, so that programs are shared
_MOST_ROWS = 1 << 16
_PATIENCE = 16  # batches that a piece waits for before it is run in a batch that is not full

# A pass over padded rows: returns arrays with a result for each id but the first.
Pass = Callable[[Int[np.ndarray, "B S"]], tuple[Shaped[jax.Array, "B S-1"], ...]]
Values = tuple[Shaped[np.ndarray, " N"], ...]


class Piece(NamedTuple):
    """One window of a text: a row of a batch.

    Attributes:
      text: bytes of the window; the row has a BOS in front of them.
      begin: index of the first byte with a result; the bytes before it are context.
      capacity: number of ids that the row is padded to.
      last: whether the text ends with this window.
    """

    text: bytes
    begin: int
    capacity: int
    last: bool = True


@dataclasses.dataclass(frozen=True)
class Windows:
    """Cuts texts into windows, so that every byte has one result.

    Attributes:
      window: maximum number of bytes of a window.
      stride: number of bytes with a result in each window but the first: its last ones. They have
        at least `window - stride` bytes of context, or all bytes before them.
    """

    window: int
    stride: int

    @classmethod
    def of(cls, max_bytes: int, window: int | None, stride: int | None) -> "Windows":
        """Returns the windows for a model, with defaults.

        Args:
          max_bytes: context of the model, BOS included.
          window: in bytes; by default 1023, or the context if it is shorter.
          stride: in bytes; by default half of the window.

        Raises:
          ValueError: the window exceeds the context, or the stride the window.
        """
        most = max_bytes - 1
        window = min(most, _DEFAULT) if window is None else window
        _check("window", window, most, ", the model's context")
        stride = (window + 1) // 2 if stride is None else stride
        _check("stride", stride, window, ", the window")
        return cls(window, stride)

    def cut(self, text: bytes) -> Iterator[Piece]:
        """Yields the windows of a text in order, at least one, all padded to the same size."""
        room = capacity(min(len(text), self.window), self.window)
        end = min(len(text), self.window)
        yield Piece(text[:end], 0, room, end == len(text))
        context = self.window - self.stride
        while end < len(text):
            begin, end = end, min(end + self.stride, len(text))
            yield Piece(text[begin - context : end], context, room, end == len(text))


def capacity(length: int, most: int) -> int:
    """Returns the number of ids that a row is padded to, for a text of `length` bytes."""
    return min(max(_SMALLEST, 1 << length.bit_length()), most + 1)


def run_pieces(run: Pass, pieces: Iterable[Piece], *, batch: int) -> Iterator[tuple[Piece, Values]]:
    """Runs the pass over pieces, and yields the results of their bytes in order.

    Every batch has `batch` rows of one capacity, some of them empty if need be. So there is one
    program for each capacity, and the results of a row do not depend on the other rows. Only a few
    pieces are read ahead, so memory does not depend on the number of pieces.

    Raises:
      ValueError: the batch is not an integer of at least 1.
    """
    _check("batch", batch, _MOST_ROWS)
    return _run_pieces(run, pieces, batch)


def run_texts(
    run: Pass,
    texts: bytes | str | Iterable[bytes | str],
    windows: Windows,
    *,
    batch: int,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Values]:
    """Runs the pass over texts, and yields the results of all bytes of each text in order.

    Args:
      run: the pass.
      texts: bytes of any kind, or text, which is encoded as UTF-8; read a few at a time.
      windows: how texts are cut.
      batch: number of windows in a batch.
      progress: called with the number of bytes that are newly done.

    Raises:
      ValueError: the batch is less than 1, or `texts` are not strings.
    """
    texts = vocab.strings("texts", texts)
    pieces = (piece for text in texts for piece in windows.cut(vocab.as_bytes(text)))
    return _joined(run_pieces(run, pieces, batch=batch), progress)


def _run_pieces(run, pieces, batch):
    waiting: dict[int, list[tuple[int, Piece]]] = {}  # by capacity, with their indices
    done: dict[int, tuple[Piece, Values]] = {}
    following = 0  # index of the piece that is yielded next

    def read(capacity):
        rows = waiting.pop(capacity)
        found = _read(run, [piece for _, piece in rows], batch)
        done.update((number, each) for (number, _), each in zip(rows, found, strict=True))

    for number, piece in enumerate(pieces):
        rows = waiting.setdefault(piece.capacity, [])
        rows.append((number, piece))
        if len(rows) == batch:
            read(piece.capacity)
        elif number - following >= _PATIENCE * batch:
            read(next(size for size, rows in waiting.items() if rows[0][0] == following))
        while following in done:
            yield done.pop(following)
            following += 1
    for size in list(waiting):
        read(size)
    for number in sorted(done):
        yield done[number]


def _read(run, pieces, batch):
    ids = np.full((batch, pieces[0].capacity), vocab.BOE, np.int32)
    for row, piece in zip(ids, pieces, strict=False):
        row[: len(piece.text) + 1] = vocab.encode(piece.text)
    values = jax.device_get(run(ids))
    return [
        (piece, tuple(value[row, piece.begin : len(piece.text)].copy() for value in values))
        for row, piece in enumerate(pieces)
    ]


def _joined(found, progress):
    parts = []
    for piece, values in found:
        parts.append(values)
        if progress is not None:
            progress(len(piece.text) - piece.begin)
        if piece.last:
            yield tuple(map(np.concatenate, zip(*parts, strict=True)))
            parts = []


def _check(name, value, most, what=""):
    if not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise ValueError(f"{name} must be an integer in 1..{most}{what}; got {value!r}")
