"""The decoding methods: each one drafter and one acceptance rule."""

import dataclasses
from collections.abc import Callable

from bytelax.decode import acceptance
from bytelax.decode.acceptance import Acceptance
from bytelax.decode.drafters import Drafter, Empty
from bytelax.decode.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Method:
    """What the loop needs to know of a method.

    Attributes:
      drafter: proposes up to `draft_length` bytes a round.
      accept: judges them.
      draft_length: K; windows are K + 1 bytes wide.
      lossless: whether the output is that of plain decoding.
    """

    drafter: Drafter
    accept: Acceptance
    draft_length: int
    lossless: bool


def ar(law: Sampling, *, window: int | None = None) -> Method:
    """Plain autoregressive decoding, one byte a round."""
    width = (window or 1) - 1
    return Method(Empty(width), lossless_rule(law), width, lossless=True)


def lossless_rule(law: Sampling) -> Acceptance:
    """The rule that leaves the output law unchanged at this temperature."""
    return acceptance.greedy if law.greedy else acceptance.rejection


METHODS: dict[str, Callable[..., Method]] = {"ar": ar}


def build(name: str, law: Sampling, **options) -> Method:
    """The method called `name`.

    Raises:
      ValueError: no such method, or an option that it does not take.
    """
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    try:
        return METHODS[name](law, **options)
    except TypeError as error:
        raise ValueError(f"method {name!r}: {error}") from None
