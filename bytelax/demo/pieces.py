"""Output as it is shown: characters where the bytes are UTF-8, escapes where they are not."""

from typing import NamedTuple

from bytelax.decode.origins import Origin
from bytelax.generation import Result


class Piece(NamedTuple):
    """A character, or a byte that is part of none.

    Attributes:
      text: what is shown.
      place: of its first byte in the output.
      origin, step: of that byte.
    """

    text: str
    place: int
    origin: Origin
    step: int


def pieces_of(result: Result) -> list[Piece]:
    """All of a result's bytes, in order. `result` has its origins."""
    pieces, place = [], 0
    for character in result.bytes.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        is_text = character.isprintable() or character in "\n\t"
        for text in [character] if is_text else [f"\\x{byte:02x}" for byte in data]:
            kind = Origin(result.origins.kind[place])
            pieces.append(Piece(text, place, kind, int(result.origins.step[place])))
            place += len(data) if is_text else 1
    return pieces
