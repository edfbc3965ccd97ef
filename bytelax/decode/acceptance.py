"""Acceptance rules: pure functions of a draft, the target's distributions and uniform numbers.

No rule takes a random key, so its output distribution can be enumerated exactly. Rules that judge
trees are in `trees`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft
from bytelax.decode.sampling import Sampling

Rule = TypeVar("Rule", bound=Callable)


class Emitted(NamedTuple):
    """The ids that one round emits."""

    ids: Int[Array, "B W"]  # W = K + 1; entries at or beyond `count` are never read
    count: Int[Array, " B"]  # type: ignore[assignment]  # at least 1; hides `tuple.count`
    drafted: Int[Array, " B"]  # number of leading ids that come from the draft
    path: Int[Array, "B W"] | None = None  # trees only: window indices of the accepted branch


@runtime_checkable
class Acceptance(Protocol):
    """Protocol of an acceptance rule, which decides how much of a draft is kept.

    A rule may set two optional attributes. `lossless = True` declares that the output follows the
    target's own distribution, and `trees = True` that the rule judges trees, and no chains. A rule
    for the drafts of some drafters only has a method `judges(drafter) -> bool`.
    """

    def __call__(
        self,
        draft: Draft,
        log_probs: Float[Array, "B W V"],
        uniforms: Float[Array, "B 2 W"],
    ) -> Emitted:
        """Verifies a draft and returns the ids to emit.

        Random numbers are used only through `sampling.happens` and `sampling.sample`, so that tests
        can enumerate every outcome.

        Args:
          draft: the proposal.
          log_probs: the target's distributions from `process_logits`, in nats. Row i is the
            distribution of the byte that follows i drafted bytes.
          uniforms: random numbers in [0, 1). `[:, 0]` decide acceptance, `[:, 1]` draw the byte
            that follows the accepted ones.

        Returns:
          The accepted ids, followed by one id from the target's own distribution.
        """
        ...


_UNDECLARED: dict[str, Any] = {"lossless": False, "trees": False, "judges": lambda drafter: True}


def declared(rule: Any, name: str) -> Any:
    """Returns what a rule declares about itself; see `Acceptance`."""
    return getattr(rule, name, _UNDECLARED[name])  # a rule may be any function


def lossless_rule(rule: Rule) -> Rule:
    """Decorator that declares that a rule is lossless."""
    rule.__dict__["lossless"] = True
    return rule


def is_drafted(draft: Draft) -> Bool[Array, "B K"]:
    """Returns the mask of the positions that hold a drafted id."""
    return jnp.arange(draft.ids.shape[1]) < draft.length[:, None]


def prefix(draft: Draft, accepted: Bool[Array, "B K"]) -> Int[Array, " B"]:
    """Returns the number of drafted ids before the first rejection."""
    return jnp.cumprod(accepted & is_drafted(draft), axis=1).sum(1)


def log_probs_of(draft: Draft) -> Float[Array, "*B K V"]:
    """Returns `log_probs` of a draft that is written out."""
    assert draft.log_probs is not None
    return draft.log_probs


def drawn(draft: Draft) -> Draft:
    """Truncates a draft before the first id that has probability 0 under `draft.log_probs`.

    Such an id cannot have been sampled from that distribution, and p / q would always accept it.
    """
    possible = at_draft(log_probs_of(draft), draft) > -jnp.inf
    return dataclasses.replace(draft, length=prefix(draft, possible))


def drafted_probs(draft: Draft) -> Float[Array, "B W V"]:
    """Returns the draft's probabilities q, which are 0 beyond the draft and at the bonus byte."""
    q = jnp.where(is_drafted(draft)[..., None], jnp.exp(log_probs_of(draft)), 0)
    return jnp.pad(q, ((0, 0), (0, 1), (0, 0)))


def at_draft(log_probs: Float[Array, "B K V"], draft: Draft) -> Float[Array, "B K"]:
    """Returns the log-probability of each drafted id under `log_probs`, in nats."""
    return jnp.take_along_axis(log_probs, draft.ids[..., None], axis=-1)[..., 0]


def residual(p: Float[Array, "*B V"], q: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
    """Returns log max(0, p - q), unnormalised: the distribution of the byte after a rejection.

    If rounding leaves no mass, p and q are equal and the rejection was itself a rounding error. The
    result is then log p.
    """
    left = jnp.maximum(p - q, 0)
    return jnp.log(jnp.where(left.sum(-1, keepdims=True) > 0, left, p))


def follow(
    draft: Draft,
    count: Int[Array, " B"],
    log_probs: Float[Array, "B W V"],
    uniforms: Float[Array, "B W"],
) -> Emitted:
    """Emits the first `count` drafted ids, then one id sampled from row `count` of `log_probs`."""
    chosen = jnp.take_along_axis(log_probs, count[:, None, None], axis=1)[:, 0]
    uniform = jnp.take_along_axis(uniforms, count[:, None], axis=1)[:, 0]
    following = sampling.sample(chosen, uniform)
    ids = jnp.pad(draft.ids, ((0, 0), (0, 1)))
    ids = jnp.where(jnp.arange(ids.shape[1]) < count[:, None], ids, following[:, None])
    return Emitted(ids, count + 1, count)


@lossless_rule
def greedy(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """Accepts the longest prefix of likeliest bytes, then emits the target's own. Lossless.

    For greedy decoding only: `uniforms` are not used.
    """
    choice = log_probs.argmax(-1).astype(jnp.int32)
    drafted = prefix(draft, draft.ids == choice[:, :-1])
    return Emitted(choice, drafted + 1, drafted)


@lossless_rule
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
    draft = drawn(draft)
    p, q = at_draft(log_probs[:, :-1], draft), at_draft(log_probs_of(draft), draft)
    accepted = sampling.happens(jnp.exp(p - q), uniforms[:, 0, :-1])
    following = residual(jnp.exp(log_probs), drafted_probs(draft))
    return follow(draft, prefix(draft, accepted), following, uniforms[:, 1])


@lossless_rule
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
    draft = drawn(draft)
    drafted = is_drafted(draft)
    log_ratio = at_draft(log_probs[:, :-1], draft) - at_draft(log_probs_of(draft), draft)
    reach = _reach(jnp.where(drafted, jnp.exp(log_ratio), 1))
    p, q = jnp.exp(log_probs), drafted_probs(draft)
    left = jnp.maximum(reach[..., None] * p - q, 0).sum(-1)
    # Without residual mass there is nothing to draw from after a stop, so the test must fail.
    within = left / jnp.where(left > 0, left + 1 - reach, 1)
    at_end = jnp.arange(reach.shape[1]) == draft.length[:, None]
    passes = sampling.happens(jnp.where(at_end, reach, within)[:, 1:], uniforms[:, 0, :-1])
    length = jnp.arange(1, reach.shape[1])
    count = jnp.where(passes & drafted, length, 0).max(1, initial=0)
    # After a fully accepted draft q is 0, so the residual is p up to a factor, as it should be.
    following = residual(reach[..., None] * p, q)
    return follow(draft, count, following, uniforms[:, 1])


def _reach(ratio):
    """Returns f32[B, W]: 1 for the empty prefix, then min(1, previous * p / q) for longer ones."""

    def step(reach, ratio):
        return jnp.minimum(reach * ratio, 1), reach

    # The last ratio belongs to no byte; it gives the scan a step even if nothing can be drafted.
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
        judge = drafter.judged_by
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
        accepted = at_draft(p[:, :-1], draft) > enough[:, :-1]
        return follow(draft, prefix(draft, accepted), log_probs, uniforms[:, 1])


typical = Typical()


def take_all(
    draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
) -> Emitted:
    """LOSSY: emits every drafted byte and none of the target's own.

    A row without a draft emits one byte drawn from the target.
    """
    draft = drawn(draft)  # a drafter's logits may form no distribution
    emitted = follow(draft, draft.length, log_probs, uniforms[:, 1])
    return emitted._replace(count=jnp.maximum(emitted.drafted, 1))
