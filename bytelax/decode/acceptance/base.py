"""The Acceptance contract, and the steps that rules share."""

import dataclasses
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft


class Emitted(NamedTuple):
    """What a round emits."""

    ids: Int[Array, "B W"]  # W = K + 1; what stands at or beyond `count` is never read
    count: Int[Array, " B"]  # at least 1
    drafted: Int[Array, " B"]  # how many of them, the first ones, are the draft's
    path: Int[Array, "B W"] | None = None  # of a tree, the window places whose ids were accepted


@runtime_checkable
class Acceptance(Protocol):
    def __call__(
        self,
        draft: Draft,
        log_probs: Float[Array, "B W V"],
        uniforms: Float[Array, "B 2 W"],
    ) -> Emitted:
        """Judges a draft.

        Two attributes are optional: `lossless = True` says that the output is that of the target
        alone, and `trees = True` that the rule judges trees.

        Random numbers are used in `sampling.happens` and `sampling.sample` alone.

        Args:
          draft: the proposal.
          log_probs: the distributions that are sampled, from `process_logits`: row i is the
            target's distribution of the byte after i drafted ones.
          uniforms: `[:, 0]` decide acceptance, `[:, 1]` draw the byte that follows.

        Returns:
          The accepted ids, then one of the target's own.
        """
        ...


def is_drafted(draft: Draft) -> Bool[Array, "B K"]:
    """Mask of the places that hold a drafted id."""
    return jnp.arange(draft.ids.shape[1]) < draft.length[:, None]


def prefix(draft: Draft, accepted: Bool[Array, "B K"]) -> Int[Array, " B"]:
    """Number of drafted ids before the first rejection."""
    return jnp.cumprod(accepted & is_drafted(draft), axis=1).sum(1)


def drawn(draft: Draft) -> Draft:
    """The draft up to the first id to which its own law gives no probability.

    Such an id was not drawn from that law, and p / q would accept it for certain.
    """
    possible = at_draft(draft.log_probs, draft) > -jnp.inf
    return dataclasses.replace(draft, length=prefix(draft, possible))


def drafted_probs(draft: Draft) -> Float[Array, "B W V"]:
    """Draft probabilities; 0 where nothing was drafted, so at the bonus byte too."""
    q = jnp.where(is_drafted(draft)[..., None], jnp.exp(draft.log_probs), 0)
    return jnp.pad(q, ((0, 0), (0, 1), (0, 0)))


def at_draft(log_probs: Float[Array, "B K V"], draft: Draft) -> Float[Array, "B K"]:
    """The log-probability of each drafted id."""
    return jnp.take_along_axis(log_probs, draft.ids[..., None], axis=-1)[..., 0]


def residual(p: Float[Array, "*B V"], q: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
    """log max(0, p - q), unnormalised: the distribution of the byte after a rejection.

    Where rounding leaves nothing of it, p and q are equal and a rejection was rounding too: then
    it is p.
    """
    left = jnp.maximum(p - q, 0)
    return jnp.log(jnp.where(left.sum(-1, keepdims=True) > 0, left, p))


def follow(
    draft: Draft,
    count: Int[Array, " B"],
    log_probs: Float[Array, "B W V"],
    uniforms: Float[Array, "B W"],
) -> Emitted:
    """The first `count` drafted ids, then one drawn from row `count` of `log_probs`."""
    law = jnp.take_along_axis(log_probs, count[:, None, None], axis=1)[:, 0]
    uniform = jnp.take_along_axis(uniforms, count[:, None], axis=1)[:, 0]
    following = sampling.sample(law, uniform)
    ids = jnp.pad(draft.ids, ((0, 0), (0, 1)))
    ids = jnp.where(jnp.arange(ids.shape[1]) < count[:, None], ids, following[:, None])
    return Emitted(ids, count + 1, count)
