"""Sampling of drafted bytes, where a draft ends, and their conversion to a `Draft`."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import sampling as sampling_
from bytelax.decode.draft import Draft, DraftPasses
from bytelax.decode.sampling import Sampling
from bytelax.models.draft_heads import GREEDY, SAMPLED


class Drawn(NamedTuple):
    """Sampled ids, and the distributions that they come from."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]


def draw(logits: Float[Array, "B N V"], how: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    """Samples one id per position from the drafter's logits, with the request's sampling.

    Args:
      logits: the drafter's logits.
      how: `DraftInput.sampling`.
      uniforms: numbers from `DraftInput.uniforms`, each to be used only once.
    """
    log_probs = sampling_.process_logits(logits, how)
    return Drawn(sampling_.draw(log_probs, how, uniforms), log_probs)


def in_a_row(*parts: Drawn) -> Drawn:
    """Concatenates sampled bytes along the position axis."""
    return Drawn(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def scan(step: Callable, carry: Any, xs: Any) -> tuple[Any, Any]:
    """Calls `jax.lax.scan`; there may be no steps under `jax.disable_jit` either."""
    steps = len(jax.tree.leaves(xs)[0])
    with contextlib.nullcontext() if steps else jax.disable_jit(False):
        return jax.lax.scan(step, carry, xs)


def scanned(drawn: Drawn) -> Drawn:
    """Reshapes what a scan has stacked from [T, B, N] to [B, T * N]."""

    def flat(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    return Drawn(*map(flat, drawn))


def draft_of(
    drawn: Drawn,
    *,
    length: Int[Array, " B"] | None = None,
    step: Int[Array, " N"] | None = None,
    passes: DraftPasses | None = None,
    state: Any = None,
) -> Draft:
    """Packs sampled bytes into a `Draft`.

    Args:
      drawn: the bytes.
      length: number of bytes proposed in each row; None proposes all of them.
      step: as in `Draft`, but the same for each row.
      passes: as in `Draft`.
      state: as in `Draft`.
    """
    batch, places = drawn.ids.shape
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, places) if length is None else length,
        log_probs=drawn.log_probs,
        step=None if step is None else jnp.broadcast_to(step, (batch, places)),
        passes=passes,
        state=state,
    )


def expected_acceptance(
    logits: Float[Array, "B V"], sampling: Sampling, *, confidence: Float[Array, "B 2"] | None
) -> Float[Array, " B"]:
    """Predicts the probability that a byte will be accepted, before it is drawn.

    That is what makes it lossless to end a draft before a byte: whether position j is drafted
    depends on the text and on the ids drawn before j, and never on id j. Then id j, where it is
    shown, is a sample from the distribution that acceptance divides by. To drop a byte for its own
    probability, which is known only after the draw, would show one at j only when a likely one was
    drawn.

    Args:
      logits: the drafter's logits of the byte.
      sampling: how the byte is sampled.
      confidence: output of a trained `Confidence` head; its prediction for sampling is of
        temperature 1. None takes the drafter's largest probability at temperature 1, which is the
        probability of agreement under greedy sampling if the drafter is calibrated, and too low
        otherwise.
    """
    if confidence is not None:
        of_kind = jnp.where(sampling.cold, confidence[:, GREEDY], confidence[:, SAMPLED])
        return jax.nn.sigmoid(of_kind)
    return jnp.exp(sampling_.byte_log_probs(logits[:, None], sampling)[:, 0].max(-1))


def survives(
    before: Float[Array, " B"], accepted: Float[Array, " B"], least: float | None
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """Returns the probability that a byte is kept, and whether it is to be drafted.

    Args:
      before: probability that all bytes of the draft before it are kept.
      accepted: from `expected_acceptance`.
      least: smallest probability of being kept with which a byte is drafted; None drafts all.
    """
    kept = before * accepted
    return kept, jnp.ones_like(kept, bool) if least is None else kept >= least


def check_survival(least: float | None) -> None:
    """Raises ValueError if a bound on the probability of being kept is not a probability."""
    if least is not None and not 0 <= least <= 1:
        raise ValueError(f"min_survival is a probability, 0..1, got {least}")
