"""The `Acceptance` protocol, and the helpers that acceptance rules share."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft

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
    for the drafts of some drafters only says so in an optional method, `judges(drafter) -> bool`.
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
