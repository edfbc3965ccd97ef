"""The vocabulary of byte ids: four special ids, then the 256 bytes, so that id = byte + 4.

Source: the Byte Latent Transformer (arXiv 2412.09871) as released.
"""

import dataclasses
import operator
import reprlib
from collections.abc import Iterable
from typing import Any, SupportsIndex

BOE = 0  # beginning of an example; also pads batches, and hash n-grams on the left
BOS = 1  # beginning of a text
EOS = 2  # end of a text
MASK = 3  # a masked byte of BLT-D; unused in the released vocabulary, never emitted
OFFSET = 4  # id of byte 0
SIZE = 260  # number of ids
BYTES = 256  # number of byte values


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Which ids a target emits, as its attribute `vocabulary`; without one it emits `ALL_BYTES`.

    Attributes:
      first: first id that may be emitted.
      stop: id after the last one that may be.
      eos: id that ends a text, inside this range or outside; None if there is none.
    """

    first: int
    stop: int
    eos: int | None = None


ALL_BYTES = Vocabulary(OFFSET, SIZE, EOS)


def encode(text: str | bytes | bytearray, *, bos: bool = True, eos: bool = False) -> list[int]:
    """Converts bytes, or text as UTF-8, to ids, by default with a BOS in front.

    Raises:
      ValueError: `text` is neither.
    """
    return [BOS] * bos + [byte + OFFSET for byte in as_bytes(text)] + [EOS] * eos


def decode(ids: Iterable[SupportsIndex]) -> bytes:
    """Converts ids to bytes; special ids are dropped.

    Raises:
      ValueError: an id is not of this vocabulary.
    """
    known = [*map(operator.index, ids)]
    if not all(0 <= i < SIZE for i in known):
        wrong = next(i for i in known if not 0 <= i < SIZE)
        raise ValueError(f"ids lie in 0..{SIZE - 1}, got {wrong}; a byte b is id b + {OFFSET}")
    return bytes(i - OFFSET for i in known if i >= OFFSET)


def strings(name: str, strings: Any) -> Iterable[Any]:
    """Returns strings, a single one as a list of it; raises ValueError for anything else."""
    if isinstance(strings, bytes | bytearray | str):
        return [strings]
    if not isinstance(strings, Iterable):
        raise ValueError(f"{name} must be a list of strings, got {reprlib.repr(strings)}")
    return strings


def as_bytes(text: Any) -> bytes:
    """Returns bytes as they are, and text as UTF-8; raises ValueError for anything else."""
    if not isinstance(text, str | bytes | bytearray):
        got = reprlib.repr(text)
        raise ValueError(f"a text, prompt or stop string is bytes or text, got {got}")
    if not isinstance(text, str):
        return bytes(text)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise ValueError(
            f"text has half a character, {half!r} at {error.start}, which UTF-8 does not encode: "
            "give bytes"
        ) from None
