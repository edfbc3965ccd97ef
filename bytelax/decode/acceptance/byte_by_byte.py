"""Rules that verify a draft byte by byte and stop at the first rejection."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import sampling
from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


@base.lossless_rule
def greedy(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Accepts the longest prefix of likeliest bytes, then emits the target's own. Lossless.

    For greedy decoding only: `uniforms` are not used.
    """
    choice = log_probs.argmax(-1).astype(jnp.int32)
    drafted = base.prefix(draft, draft.ids == choice[:, :-1])
    return Emitted(choice, drafted + 1, drafted)


@base.lossless_rule
def rejection(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Accepts drafted bytes one by one by rejection sampling (speculative sampling). Lossless.

    A drafted byte x is accepted with probability min(1, p(x) / q(x)). The byte after the first
    rejection is drawn from the residual distribution, proportional to max(0, p - q). Leviathan et
    al. (arXiv 2211.17192, algorithm 1), Chen et al. (arXiv 2302.01318). A deterministic draft has a
    one-hot q: x is accepted with probability p(x), and otherwise the byte is drawn from p without
    x.
    """
    draft = base.drawn(draft)
    p, q = base.at_draft(log_probs[:, :-1], draft), base.at_draft(base.log_probs_of(draft), draft)
    accepted = sampling.happens(jnp.exp(p - q), uniforms[:, 0, :-1])
    following = base.residual(jnp.exp(log_probs), base.drafted_probs(draft))
    return base.follow(draft, base.prefix(draft, accepted), following, uniforms[:, 1])
