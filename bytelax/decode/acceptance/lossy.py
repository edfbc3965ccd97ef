"""Lossy acceptance rules, which change the distribution of the output."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


@dataclasses.dataclass(frozen=True)
class Typical:
    """LOSSY: accepts bytes that are typical of the target, p(x) > min(epsilon, delta exp(-H(p))).

    Medusa (Cai et al., arXiv 2401.10774). H is the entropy of the target's distribution p, in nats.
    Accepted bytes follow the drafter's distribution, and the byte after them is drawn from the
    target. Under greedy sampling H is 0, and the rule equals `greedy` as long as `epsilon` or
    `delta` is below 1.

    Attributes:
      epsilon: probability above which a byte is always accepted.
      delta: scale of the entropy-dependent threshold, which is lower where the target is unsure.
    """

    epsilon: float = 0.3
    delta: float = 0.09

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        p = jnp.exp(log_probs)
        entropy = -jnp.where(p > 0, p * log_probs, 0).sum(-1)
        enough = jnp.minimum(self.epsilon, self.delta * jnp.exp(-entropy))
        accepted = base.at_draft(p[:, :-1], draft) > enough[:, :-1]
        return base.follow(draft, base.prefix(draft, accepted), log_probs, uniforms[:, 1])


typical = Typical()


def take_all(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """LOSSY: emits every drafted byte and none of the target's own.

    A row without a draft emits one byte drawn from the target.
    """
    emitted = base.follow(draft, draft.length, log_probs, uniforms[:, 1])
    return emitted._replace(count=jnp.maximum(emitted.drafted, 1))
