"""What a model tells about every byte of texts of any length, in batches of windows.

A text that is longer than a window is read in several. Where they lie depends on no byte, and what
is told about a byte depends on the bytes before it alone.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int, Shaped

from bytelax import requests, vocab

_DEFAULT = 1023  # bytes; with the BOS a power of two
_SMALLEST = 64  # ids; rows are padded to powers of two from here, so that programs are shared
_MOST_ROWS = 1 << 16
_PATIENCE = 16  # batches; a piece that has waited so long is told without a full batch

# Ids of padded rows -> arrays with a column for each id but the first: what is told about it.
Tell = Callable[[Int[np.ndarray, "B S"]], tuple[Shaped[jax.Array, "B S-1"], ...]]
Told = tuple[Shaped[np.ndarray, " N"], ...]


class Piece(NamedTuple):
    """What one row of a pass reads.

    Attributes:
      text: the bytes, to which the row adds a BOS in front.
      begin: the first of them that is asked about; those before it are context.
      capacity: ids that the row is padded to.
      last: whether its text ends with it.
    """

    text: bytes
    begin: int
    capacity: int
    last: bool = True


@dataclasses.dataclass(frozen=True)
class Windows:
    """How texts are cut into pieces.

    Attributes:
      window: most bytes that a pass sees of a text.
      stride: bytes that each window but the first is asked about: its last ones. Every byte is
        asked about once, behind at least `window - stride` bytes or all that there are.
    """

    window: int
    stride: int

    @classmethod
    def of(cls, max_bytes: int, window: int | None, stride: int | None) -> "Windows":
        """The windows of a model's context, which counts the BOS.

        Args:
          max_bytes: the context.
          window: by default 1023 bytes, or the context if it is shorter.
          stride: by default half of the window.

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
        """The pieces of a text in order, at least one. All are padded to the same size."""
        room = capacity(min(len(text), self.window), self.window)
        end = min(len(text), self.window)
        yield Piece(text[:end], 0, room, end == len(text))
        context = self.window - self.stride
        while end < len(text):
            begin, end = end, min(end + self.stride, len(text))
            yield Piece(text[begin - context : end], context, room, end == len(text))


def capacity(length: int, most: int) -> int:
    """Ids that a row is padded to, from the length of its text and that of the longest one."""
    return min(max(_SMALLEST, 1 << length.bit_length()), most + 1)


def tell_pieces(tell: Tell, pieces: Iterable[Piece], *, batch: int) -> Iterator[tuple[Piece, Told]]:
    """What is told about the bytes of each piece that are asked about, in the order of the pieces.

    Every pass has `batch` rows, empty ones if need be, all of one capacity: there is one program a
    capacity, and a row's numbers do not depend on what else is in the batch. Few pieces are read
    ahead, so that memory depends on the size of a batch and not on how many pieces there are.

    Raises:
      ValueError: the batch is no number from 1 on.
    """
    _check("batch", batch, _MOST_ROWS)
    return _tell_pieces(tell, pieces, batch)


def tell_texts(
    tell: Tell,
    texts: Iterable[bytes | str],
    windows: Windows,
    *,
    batch: int,
    progress: Callable[[int], object] | None = None,
) -> Iterator[Told]:
    """What is told about the bytes of each text, in order. Texts are taken as they are needed.

    Args:
      tell: the pass.
      texts: bytes of any kind, or text that is encoded as UTF-8; may be empty.
      windows: how they are cut.
      batch: windows in a pass.
      progress: called with the number of bytes that have just been told about.

    Raises:
      ValueError: the batch is less than 1, or `texts` is a single one.
    """
    texts = requests.strings("texts", texts)
    pieces = (piece for text in texts for piece in windows.cut(requests.as_bytes(text)))
    return _joined(tell_pieces(tell, pieces, batch=batch), progress)


def _tell_pieces(tell, pieces, batch):
    waiting: dict[int, list[tuple[int, Piece]]] = {}  # by capacity, with their numbers
    told: dict[int, tuple[Piece, Told]] = {}
    following = 0  # number of the piece that is yielded next

    def read(capacity):
        rows = waiting.pop(capacity)
        found = _pass(tell, [piece for _, piece in rows], batch)
        told.update((number, each) for (number, _), each in zip(rows, found, strict=True))

    for number, piece in enumerate(pieces):
        rows = waiting.setdefault(piece.capacity, [])
        rows.append((number, piece))
        if len(rows) == batch:
            read(piece.capacity)
        elif number - following >= _PATIENCE * batch:
            read(next(size for size, rows in waiting.items() if rows[0][0] == following))
        while following in told:
            yield told.pop(following)
            following += 1
    for size in list(waiting):
        read(size)
    for number in sorted(told):
        yield told[number]


def _pass(tell, pieces, batch):
    ids = np.full((batch, pieces[0].capacity), vocab.BOE, np.int32)
    for row, piece in zip(ids, pieces, strict=False):
        row[: len(piece.text) + 1] = vocab.encode(piece.text)
    values = [np.asarray(value) for value in tell(ids)]
    return [
        (piece, tuple(value[row, piece.begin : len(piece.text)].copy() for value in values))
        for row, piece in enumerate(pieces)
    ]


def _joined(told, progress):
    parts = []
    for piece, values in told:
        parts.append(values)
        if progress is not None:
            progress(len(piece.text) - piece.begin)
        if piece.last:
            yield tuple(map(np.concatenate, zip(*parts, strict=True)))
            parts = []


def _check(name, value, most, what=""):
    if not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number in 1..{most}{what}; got {value!r}")
