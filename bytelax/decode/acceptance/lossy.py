"""Rules that change what is generated. No method that uses one is lossless."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


@dataclasses.dataclass(frozen=True)
class Typical:
    """LOSSY: accepts what the target finds typical, p(x) > min(epsilon, delta exp(-H(p))).

    Medusa (Cai et al., arXiv 2401.10774). Accepted bytes follow the draft's law, cut where the
    target's entropy H calls for it. The byte that follows is drawn from the target. With greedy
    laws H is 0 and this is `greedy`, as long as `epsilon` and `delta` do not reach 1.

    Attributes:
      epsilon: probability at which any byte will do.
      delta: how much less will do where the target is unsure.
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
