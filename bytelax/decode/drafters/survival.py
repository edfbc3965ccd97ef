"""Ends a draft before the first byte that is unlikely to be kept.

The rule that makes this lossless: whether position j is drafted depends on the text and on the ids
drawn before j, and never on id j. Then id j, where it is shown, is a sample from the distribution
that acceptance divides by. All that is read here is known before id j is drawn: the drafter's
distribution of it, or what a `Confidence` head makes of the state that predicts it. In contrast,
the probability of id j itself is known only after the draw. To drop the byte for it would show a
byte at j only when a likely one was drawn.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bytelax.decode import sampling as sampling_
from bytelax.decode.sampling import Sampling
from bytelax.models.head_parts import GREEDY, SAMPLED


def expected_acceptance(
    logits: Float[Array, "B V"], sampling: Sampling, *, confidence: Float[Array, "B 2"] | None
) -> Float[Array, " B"]:
    """Predicts the probability that a byte will be accepted, before it is drawn.

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


def check(least: float | None) -> None:
    """Raises ValueError if a bound on the probability of being kept is not a probability."""
    if least is not None and not 0 <= least <= 1:
        raise ValueError(f"min_survival is a probability, 0..1, got {least}")
