"""Byte ids as the released byte models number them: four specials, then the 256 bytes.

Source: the Byte Latent Transformer (arXiv 2412.09871) as released, id = byte + 4.
"""

import operator
from collections.abc import Iterable
from typing import SupportsIndex

BOE = 0  # beginning of an example; also the id that pads the hash n-grams on the left
BOS = 1
EOS = 2
MASK = 3  # a byte that BLT-D is to fill in; spare in the released vocabulary, never emitted
OFFSET = 4
SIZE = 260
BYTES = 256


def encode(text: bytes, *, bos: bool = True, eos: bool = False) -> list[int]:
    """The ids of `text`, by default behind a BOS."""
    return [BOS] * bos + [byte + OFFSET for byte in text] + [EOS] * eos


def decode(ids: Iterable[SupportsIndex]) -> bytes:
    """The bytes among `ids`; specials are dropped."""
    return bytes(i - OFFSET for i in map(operator.index, ids) if i >= OFFSET)
