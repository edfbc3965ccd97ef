"""Rules that judge one drafted byte after the other, and stop at the first they refuse."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import sampling
from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


def greedy(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """The longest prefix that the target would have chosen, then its choice. Lossless, greedy."""
    choice = log_probs.argmax(-1).astype(jnp.int32)
    drafted = base.prefix(draft, draft.ids == choice[:, :-1])
    return Emitted(choice, drafted + 1, drafted)


greedy.lossless = True


def rejection(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Speculative sampling: accept x with min(1, p(x) / q(x)), else draw from max(0, p - q).

    Leviathan et al. (arXiv 2211.17192, algorithm 1), Chen et al. (arXiv 2302.01318). Lossless. A
    byte that was not drawn has a one-hot q: accepted with p(x), else p without x.
    """
    draft = base.drawn(draft)
    p, q = base.at_draft(log_probs[:, :-1], draft), base.at_draft(draft.log_probs, draft)
    accepted = sampling.happens(jnp.exp(p - q), uniforms[:, 0, :-1])
    following = base.residual(jnp.exp(log_probs), base.drafted_probs(draft))
    return base.follow(draft, base.prefix(draft, accepted), following, uniforms[:, 1])


rejection.lossless = True
