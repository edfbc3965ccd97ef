"""Bytes drawn from a drafter's law, and the draft that they are."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.drafters.base import Draft, DraftPasses
from bytelax.decode.sampling import Sampling


class Drawn(NamedTuple):
    """Drafted ids, the laws they were drawn from, and how likely the drafter thought them."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]
    confidence: Float[Array, "B N"]


def draw(logits: Float[Array, "B N V"], law: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    log_probs = sampling.process_logits(logits, law)
    ids = sampling.draw(log_probs, law, uniforms)
    return Drawn(ids, log_probs, sampling.probability(logits, law, ids))


def in_a_row(*parts: Drawn) -> Drawn:
    """One behind the other."""
    return Drawn(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def scanned(drawn: Drawn) -> Drawn:
    """What a scan stacked, [T, B, N], as [B, T N]."""

    def flat(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    return Drawn(*map(flat, drawn))


def draft_of(
    drawn: Drawn,
    law: Sampling,
    *,
    step: Int[Array, " N"],
    passes: DraftPasses,
    computed: Any = None,
) -> Draft:
    """All of them, in every row.

    Args:
      drawn: the bytes.
      law: that they were drawn under.
      step: as in `Draft`, the same in each row.
      passes: as in `Draft`.
      computed: as in `Draft`.
    """
    batch, width = drawn.ids.shape
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, width),
        log_probs=drawn.log_probs,
        deterministic=jnp.full(batch, law.greedy),
        step=jnp.broadcast_to(step, (batch, width)),
        passes=passes,
        confidence=drawn.confidence,
        computed=computed,
    )
