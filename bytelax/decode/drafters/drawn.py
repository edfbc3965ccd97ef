"""Bytes drawn from a drafter's own distribution, and the draft that they make."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, DraftPasses
from bytelax.decode.sampling import Sampling


class Drawn(NamedTuple):
    """Drafted ids, the distributions they were drawn from, and the drafter's own probabilities."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]
    confidence: Float[Array, "B N"]


def draw(logits: Float[Array, "B N V"], law: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    """One id from each of the logits, as the request samples.

    Args:
      logits: the drafter's.
      law: `DraftInput.sampling`.
      uniforms: of `DraftInput.uniforms`, each used once.
    """
    log_probs = sampling.process_logits(logits, law)
    ids = sampling.draw(log_probs, law, uniforms)
    return Drawn(ids, log_probs, sampling.probability(logits, law, ids))


def in_a_row(*parts: Drawn) -> Drawn:
    """Concatenates along the places."""
    return Drawn(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def scanned(drawn: Drawn) -> Drawn:
    """What a scan stacked, [T, B, N], as [B, T N]."""

    def flat(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    return Drawn(*map(flat, drawn))


def draft_of(
    drawn: Drawn,
    *,
    step: Int[Array, " N"] | None = None,
    passes: DraftPasses | None = None,
    computed: Any = None,
    state: Any = None,
) -> Draft:
    """Packs drawn bytes into a full-length `Draft`.

    Args:
      drawn: the bytes.
      step: as in `Draft`, the same in each row.
      passes: as in `Draft`.
      computed: as in `Draft`.
      state: as in `Draft`.
    """
    batch, places = drawn.ids.shape
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, places),
        log_probs=drawn.log_probs,
        step=None if step is None else jnp.broadcast_to(step, (batch, places)),
        passes=passes,
        confidence=drawn.confidence,
        computed=computed,
        state=state,
    )
