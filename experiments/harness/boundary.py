"""Whether drafts are kept before and after the boundary of the patch that they begin in."""

from collections.abc import Sequence
from typing import NamedTuple

from bytelax.decode import Origin


class Reached(NamedTuple):
    """Drafted bytes before which none of their draft was refused, and how many of them were kept.

    A byte is before the boundary if plain decoding would predict it from the latent that it was
    drafted from, and after it if a patch has closed since.
    """

    before: int
    kept_before: int
    after: int
    kept_after: int


def counted(origins: Sequence[int], closes: Sequence[bool]) -> Reached:
    """Counts the drafted bytes of one continuation.

    Args:
      origins: `Origin` of each of its bytes, by a method that drafts in every round.
      closes: whether a patch closes with the byte before each of them: that of the prompt's last
        byte comes first.
    """
    reached, kept = [0, 0], [0, 0]
    behind = False
    for origin, closed in zip(origins, closes, strict=True):
        behind = behind or bool(closed)
        if origin in (Origin.DRAFTED, Origin.CORRECTED):
            reached[behind] += 1
            kept[behind] += origin == Origin.DRAFTED
        if origin != Origin.DRAFTED:  # the target's own byte ends a round
            behind = False
    return Reached(reached[False], kept[False], reached[True], kept[True])
