"""Rules for chains: the lossless ones, the choice among them, and the lossy ones."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import sampling
from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Acceptance, Emitted
from bytelax.decode.draft import Draft
from bytelax.decode.sampling import Sampling


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


@base.lossless_rule
def block_verification(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Keeps the longest prefix of the draft that passes its test, by block verification. Lossless.

    Sun et al. (arXiv 2403.10444). Every prefix has a test of its own, and a prefix may be kept
    although a shorter one failed. On average this never accepts fewer bytes than `rejection`.
    Because prefixes are judged as a whole, the length of a draft may depend on the bytes drafted
    before its end, but not on bytes that would have come after it. The byte emitted after a
    rejection may equal the rejected one.
    """
    draft = base.drawn(draft)
    drafted = base.is_drafted(draft)
    log_ratio = base.at_draft(log_probs[:, :-1], draft) - base.at_draft(
        base.log_probs_of(draft), draft
    )
    reach = _reach(jnp.where(drafted, jnp.exp(log_ratio), 1))
    p, q = jnp.exp(log_probs), base.drafted_probs(draft)
    left = jnp.maximum(reach[..., None] * p - q, 0).sum(-1)
    # Without residual mass there is nothing to draw from after a stop, so the test must fail.
    within = left / jnp.where(left > 0, left + 1 - reach, 1)
    at_end = jnp.arange(reach.shape[1]) == draft.length[:, None]
    passes = sampling.happens(jnp.where(at_end, reach, within)[:, 1:], uniforms[:, 0, :-1])
    prefix = jnp.arange(1, reach.shape[1])
    count = jnp.where(passes & drafted, prefix, 0).max(1, initial=0)
    # After a fully accepted draft q is 0, so the residual is p up to a factor, as it should be.
    following = base.residual(reach[..., None] * p, q)
    return base.follow(draft, count, following, uniforms[:, 1])


def _reach(ratio):
    """Returns f32[B, W]: 1 for the empty prefix, then min(1, previous * p / q) for longer ones."""

    def step(reach, ratio):
        return jnp.minimum(reach * ratio, 1), reach

    # The last ratio is of no byte: with it the scan has a step even if nothing can be drafted.
    ratio = jnp.pad(ratio, ((0, 0), (0, 1)), constant_values=1)
    return jax.lax.scan(step, jnp.ones(ratio.shape[0], ratio.dtype), ratio.T)[1].T


@dataclasses.dataclass(frozen=True)
class Lossless:
    """Selects the lossless rule for a request: `greedy` for greedy decoding, otherwise `sampled`.

    A drafter that proposes trees names its own rule in the attribute `judged_by`, which wins.

    Attributes:
      sampled: rule for sampled decoding, `block_verification` or `rejection`.
    """

    sampled: Acceptance = block_verification

    lossless = True

    def rule(self, sampling: Sampling, drafter: Any) -> Acceptance:
        """Returns the rule for requests with these sampling settings and for this drafter."""
        judge = getattr(drafter, "judged_by", None)
        return judge or (greedy if sampling.greedy else self.sampled)


lossless = Lossless()


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
