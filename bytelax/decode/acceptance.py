"""Acceptance rules: pure functions of a draft, the target's laws and uniform numbers.

No key inside, so a rule can be enumerated exactly. `log_probs` are the laws that are sampled, from
`process_logits`: row i is the law of the byte after i drafted ones.
"""

from typing import Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.drafters.base import Draft

Emitted = tuple[Int[Array, "B W"], Int[Array, " B"]]  # W = K + 1


@runtime_checkable
class Acceptance(Protocol):
    def __call__(
        self,
        draft: Draft,
        log_probs: Float[Array, "B W V"],
        uniforms: Float[Array, "B 2 W"],
    ) -> Emitted:
        """Judges a draft.

        Args:
          draft: the proposal.
          log_probs: the target's laws.
          uniforms: `[:, 0]` decide acceptance, `[:, 1]` draw the byte that follows.

        Returns:
          The emitted ids, accepted ones first, then one of the target's own; and how many, 1..K+1.
        """
        ...


def greedy(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """The longest prefix that the target would have chosen, then its choice. Lossless, greedy."""
    choice = log_probs.argmax(-1).astype(jnp.int32)
    return _emit(draft, draft.ids == choice[:, :-1], choice)


def rejection(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Speculative sampling: accept x with min(1, p(x) / q(x)), else draw from max(0, p - q).

    Leviathan et al. (arXiv 2211.17192, algorithm 1), Chen et al. (arXiv 2302.01318). Lossless. A
    deterministic row has a one-hot q: accepted with p(x), else p without x.
    """
    at_draft = jnp.take_along_axis(log_probs[:, :-1], draft.ids[..., None], axis=-1)[..., 0]
    drawn = jnp.take_along_axis(draft.log_probs, draft.ids[..., None], axis=-1)[..., 0]
    accepted = uniforms[:, 0, :-1] < jnp.exp(at_draft - drawn)
    here = jnp.arange(draft.ids.shape[1]) < draft.length[:, None]
    q = jnp.where(here[..., None], jnp.exp(draft.log_probs), 0)
    q = jnp.pad(q, ((0, 0), (0, 1), (0, 0)))  # the bonus byte, like one not drafted, is p's own
    residual = jnp.maximum(jnp.exp(log_probs) - q, 0)
    # p = q up to rounding leaves no residual; then nothing was rejected but by rounding.
    empty = residual.sum(-1, keepdims=True) == 0
    residual = jnp.where(empty, log_probs, jnp.log(residual))
    return _emit(draft, accepted, sampling.sample(residual, uniforms[:, 1]))


def _emit(draft, accepted, following) -> Emitted:
    """Drafted ids up to the first refusal, then the id that follows there."""
    here = jnp.arange(draft.ids.shape[1]) < draft.length[:, None]
    count = jnp.cumprod(accepted & here, axis=1).sum(1)
    drafted = jnp.pad(draft.ids, ((0, 0), (0, 1)))
    index = jnp.arange(drafted.shape[1])
    return jnp.where(index < count[:, None], drafted, following), count + 1
