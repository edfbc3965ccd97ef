"""Whether a continuation ends in a loop, which is easy to draft and says little about text."""

REPEATS = 3  # times that a stretch must follow itself
LEAST = 24  # bytes that repeat, at least: "......." and a ruled line are no loops before that


def period(text: bytes) -> int | None:
    """The shortest period of the end of a text, in bytes; None if it does not loop.

    The end loops with period p if its last `max(3 p, 24)` bytes are those p bytes before them.
    """
    for length in range(1, len(text) // REPEATS + 1):
        tail = max(REPEATS * length, LEAST)
        if tail > len(text):
            return None
        if text[-tail + length :] == text[-tail:-length]:
            return length
    return None
