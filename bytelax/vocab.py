"""The vocabulary of byte ids: four special ids, then the 256 bytes, so that id = byte + 4.

Source: the Byte Latent Transformer (arXiv 2412.09871) as released.
"""

import operator
import reprlib
from collections.abc import Iterable
from typing import SupportsIndex

BOE = 0  # beginning of an example; also pads batches, and hash n-grams on the left
BOS = 1  # beginning of a text
EOS = 2  # end of a text
MASK = 3  # a masked byte of BLT-D; unused in the released vocabulary, never emitted
OFFSET = 4  # id of byte 0
SIZE = 260  # number of ids
BYTES = 256  # number of byte values


def encode(text: bytes, *, bos: bool = True, eos: bool = False) -> list[int]:
    """Converts bytes to ids, by default with a BOS in front.

    Raises:
      ValueError: `text` is no bytes.
    """
    if isinstance(text, str):
        raise ValueError(f"ids are made of bytes, not of text: encode {reprlib.repr(text)} first")
    return [BOS] * bos + [byte + OFFSET for byte in text] + [EOS] * eos


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
