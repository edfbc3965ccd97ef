"""Methods for any model: plain decoding, prompt lookup, a draft model."""

import dataclasses

from bytelax.decode.drafters import Drafter, DraftModel, Empty, Lookup
from bytelax.decode.sampling import Sampling
from bytelax.methods.method import (
    Length,
    Method,
    Threshold,
    longest_draft,
    needs_blt,
    of_length,
    target_of,
    verified,
)
from bytelax.model import Model

# All that verify take `window`, the bytes of every window: at one batch and window they write the
# same, bit for bit. None is as wide as their drafts need.


def ar(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    window: int | None = None,
    synchronous: float = 0.0,
) -> Method:
    """Plain autoregressive decoding, one byte a round.

    The rows of a BLT's batch close their patches at different bytes, so some row needs the global
    transformer at nearly every one. With `synchronous`, rows that have closed a patch wait until so
    large a share of the rows that run has, and go on together: 1 is all of them. No byte changes.
    """
    target = target_of(model, capacity, 0, window)
    if not 0 <= synchronous <= 1:
        raise ValueError(f"synchronous is a share of the rows, 0..1, got {synchronous}")
    if synchronous:
        needs_blt(model, "ar, synchronous")
        target = dataclasses.replace(target, synchronous=float(synchronous))
    return verified(target, Empty(target.width - 1, model.config.vocab_size), law)


def lookup(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_length: Length = 8,
    shortest: int = 4,
    longest: int = 16,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """Copy what followed the last time the text ended like this. Lossless."""
    width = longest_draft(model, draft_length)
    target = target_of(model, capacity, width, window)
    drafter = Lookup(width, shortest, longest, model.config.vocab_size)
    return verified(target, of_length(drafter, draft_length, None, law), law, verify)


def small_draft_model(
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    draft_model: Model,
    draft_length: Length = 4,
    min_confidence: Threshold | None = None,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """A smaller model drafts, byte by byte. Lossless."""
    width = longest_draft(model, draft_length)
    target = target_of(model, capacity, width, window)
    if draft_model.config.vocab_size != model.config.vocab_size:
        raise ValueError(
            f"the draft model has {draft_model.config.vocab_size} ids, the model "
            f"{model.config.vocab_size}; they must be of one vocabulary"
        )
    small = draft_model.module.target(capacity=capacity, width=width + 1)
    drafter = DraftModel(small, width)
    drafter = of_length(drafter, draft_length, min_confidence, law)
    return verified(target, drafter, law, verify, draft_model.params)


def own_drafter(
    drafter: Drafter,
    model: Model,
    law: Sampling,
    *,
    capacity: int,
    verify: str = "byte",
    window: int | None = None,
) -> Method:
    """A drafter of one's own, of chains, without parameters; `drafter.width` is K. Lossless."""
    return verified(target_of(model, capacity, drafter.width, window), drafter, law, verify)
