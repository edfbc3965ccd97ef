"""Block verification: the draft is judged as a whole."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import sampling
from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


def block_verification(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Keeps the longest prefix whose own test is passed; shorter ones may have failed theirs.

    Sun et al. (arXiv 2403.10444). Lossless, and on average never accepts less than
    `rejection`. It rests on whole prefixes, so a draft's length may depend on the bytes drafted
    before its end, but on none that would have come after. A refused place may be followed by the
    very byte that was drafted there.
    """
    draft = base.drawn(draft)
    drafted = base.is_drafted(draft)
    log_ratio = base.at_draft(log_probs[:, :-1], draft) - base.at_draft(draft.log_probs, draft)
    reach = _reach(jnp.where(drafted, jnp.exp(log_ratio), 1))
    p, q = jnp.exp(log_probs), base.drafted_probs(draft)
    left = jnp.maximum(reach[..., None] * p - q, 0).sum(-1)
    # Prefix i of 1..length; where nothing is left there is nothing to draw from after a stop.
    within = left / jnp.where(left > 0, left + 1 - reach, 1)
    at_end = jnp.arange(reach.shape[1]) == draft.length[:, None]
    passes = sampling.happens(jnp.where(at_end, reach, within)[:, 1:], uniforms[:, 0, :-1])
    prefix = jnp.arange(1, reach.shape[1])
    count = jnp.where(passes & drafted, prefix, 0).max(1, initial=0)
    # Behind a draft kept whole comes p itself; q is 0 there, and a scale changes no law.
    following = base.residual(reach[..., None] * p, q)
    return base.follow(draft, count, following, uniforms[:, 1])


block_verification.lossless = True


def _reach(ratio):
    """f32[B, W]: of a prefix, min(1, that of the one before * p / q); 1 of the empty one."""

    def step(before, ratio):
        now = jnp.minimum(before * ratio, 1)
        return now, now

    _, reach = jax.lax.scan(step, jnp.ones(ratio.shape[0], ratio.dtype), ratio.T)
    return jnp.pad(reach.T, ((0, 0), (1, 0)), constant_values=1)
