"""Splits output for display: characters where the bytes are UTF-8, escapes elsewhere."""

from typing import NamedTuple

from bytelax.decode.origins import Origin
from bytelax.results import Result


class Piece(NamedTuple):
    """A character, or a single byte that is not part of one.

    Attributes:
      text: what is shown.
      place: index of its first byte in the output.
      origin: provenance of that byte.
      step: drafter's pass that chose that byte, as in `Origins`.
    """

    text: str
    place: int
    origin: Origin
    step: int


def pieces_of(result: Result) -> list[Piece]:
    """Splits all bytes of a result into pieces, in order. The result must have origins."""
    assert result.origins is not None
    pieces, place = [], 0
    for character in result.bytes.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        is_text = character.isprintable() or character in "\n\t"
        for text in [character] if is_text else [f"\\x{byte:02x}" for byte in data]:
            kind = Origin(int(result.origins.kind[place]))
            pieces.append(Piece(text, place, kind, int(result.origins.step[place])))
            place += len(data) if is_text else 1
    return pieces
