"""One choice among several drafts a row."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.acceptance import base
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft

_HALVINGS = 16


def k_seq(
    drafts: Draft,
    log_probs: Float[Array, "N B W V"],
    uniforms: Float[Array, "B M W"],
) -> tuple[Emitted, Int[Array, " B"]]:
    """Tries several drafts a row, place by place, among those that share the accepted prefix.

    SpecTr's k-SEQ (Sun et al., arXiv 2310.15141). Lossless. Of n candidates x for a place, each
    is accepted in turn with min(1, p(x) / (rho q(x))). With b = sum_x min(q, p / rho), an id is
    then accepted with probability min(q, p / rho) (1 - (1 - b)^n) / b, and what p has beyond that
    is the law after n refusals. That needs 1 - (1 - b)^n <= rho b, which holds at rho = n, and from
    some rho in 1..n on; the smallest one accepts the most. It is found by halving that interval
    from above, so that stopping early costs acceptance, never the law. One draft makes this
    `rejection`.

    Args:
      drafts: leading axis N in every leaf: drafts of a row drawn independently from one law. Each
        may have its own length, as long as that depends on no byte it did not draft.
      log_probs: the target's laws along each draft; alike where drafts share a prefix.
      uniforms: `[:, n]` decide acceptance of draft n, `[:, N]` draw the byte that follows: M = N+1.

    Returns:
      What a rule for one draft returns; and which draft
      they follow, i32[B]: one that begins with all accepted ids.
    """
    drafts = jax.vmap(base.drawn)(drafts)
    many, batch, places = drafts.ids.shape
    # One place more, at which there is nothing drafted: the bonus byte.
    by_place = {
        "ids": jnp.pad(jnp.moveaxis(drafts.ids, 2, 0), ((0, 1), (0, 0), (0, 0))),
        "p": jnp.exp(jnp.moveaxis(log_probs, 2, 0)),
        "q": jnp.pad(jnp.exp(jnp.moveaxis(drafts.log_probs, 2, 0)), ((0, 1), *((0, 0),) * 3)),
        "there": jnp.arange(places + 1)[:, None, None] < drafts.length,
        "uniforms": jnp.moveaxis(uniforms[:, :many], 2, 0),
    }

    def place(carry, now):
        shares, going, count, following = carry  # bool[N, B]: holds the accepted prefix
        candidates = shares & now["there"]
        p = _of(now["p"], shares.argmax(0))
        q = jnp.where(candidates.any(0)[:, None], _of(now["q"], candidates.argmax(0)), 0)
        rho, law = _rho_and_residual(p, q, candidates.sum(0))
        at_p = jnp.take_along_axis(p, now["ids"].T, axis=1)
        at_q = jnp.take_along_axis(q, now["ids"].T, axis=1)
        # A byte that p is sure of is emitted in any case.
        chance = jnp.where(at_p < 1, at_p / (rho[:, None] * at_q), 1)
        accepted = candidates.T & sampling.happens(chance, now["uniforms"])
        chosen = jnp.take_along_axis(now["ids"].T, accepted.argmax(1)[:, None], axis=1)[:, 0]
        onward = going & accepted.any(1)
        shares = jnp.where(onward, candidates & (now["ids"] == chosen), shares)
        following = jnp.where((going & ~onward)[:, None], law, following)
        return (shares, onward, count + onward, following), None

    everything = (
        jnp.ones((many, batch), bool),
        jnp.ones(batch, bool),
        jnp.zeros(batch, jnp.int32),
        log_probs[0, :, 0],
    )
    (shares, _, count, following), _ = jax.lax.scan(place, everything, by_place)
    followed = shares.argmax(0).astype(jnp.int32)
    draft = jax.tree.map(lambda x: x[followed, jnp.arange(batch)], drafts)
    laws = jnp.broadcast_to(following[:, None], log_probs.shape[1:])
    return base.follow(draft, count, laws, uniforms[:, many]), followed


@dataclasses.dataclass(frozen=True)
class SpecTr:
    """`k_seq` on drafts that stand side by side in one window, as `drafters.Several` puts them.

    Attributes:
      many: drafts a row, all of one length.
    """

    many: int

    lossless = trees = True

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        batch, drafted = draft.ids.shape
        one = drafted // self.many

        def apart(x):
            return jnp.moveaxis(x.reshape(batch, self.many, one, *x.shape[2:]), 1, 0)

        drafts = dataclasses.replace(
            draft,
            ids=apart(draft.ids),
            length=jnp.broadcast_to(draft.length // self.many, (self.many, batch)),
            log_probs=apart(draft.log_probs),
            step=apart(draft.step),
            passes=jax.tree.map(lambda x: jnp.broadcast_to(x, (self.many, batch)), draft.passes),
            confidence=None,
            parents=None,
            computed=None,
            state=None,
        )
        roots = jnp.broadcast_to(log_probs[:, :1], (self.many, batch, 1, log_probs.shape[-1]))
        laws = jnp.concatenate([roots, apart(log_probs[:, 1:])], axis=2)
        # One stream a draft, whose last place judges nothing, and one for the byte that follows.
        judging = uniforms[:, 0, :drafted].reshape(batch, self.many, one)
        judging = jnp.pad(judging, ((0, 0), (0, 0), (0, 1)), mode="edge")
        streams = jnp.concatenate([judging, uniforms[:, 1:, : one + 1]], axis=1)
        emitted, followed = k_seq(drafts, laws, streams)
        path = followed[:, None] * one + jnp.arange(one + 1)
        path = jnp.where(jnp.arange(one + 1) == 0, 0, path)
        rest = ((0, 0), (0, drafted - one))
        return emitted._replace(ids=jnp.pad(emitted.ids, rest), path=jnp.pad(path, rest))


def _of(laws, which):
    """f32[B, V]: each row's law along one of its drafts, from f32[N, B, V]."""
    return laws[which, jnp.arange(which.shape[0])]


def _rho_and_residual(p, q, many):
    """f32[B], and log f32[B, V]: rho of `many` candidates, and the law once all are refused."""

    def overlap(rho):
        """min(q, p / rho), its sum b, and 1 - (1 - b)^n."""
        each = jnp.minimum(q, p / rho[:, None])
        one = jnp.minimum(each.sum(-1), 1)
        return each, one, 1 - (1 - one) ** many

    def is_safe(rho):
        _, one, any_ = overlap(rho)
        return any_ <= rho * one

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        safe = is_safe(middle)
        return jnp.where(safe, low, middle), jnp.where(safe, middle, high)

    low, high = jnp.ones(p.shape[0]), jnp.maximum(many, 1).astype(jnp.float32)
    _, high = jax.lax.fori_loop(0, _HALVINGS, halve, (low, high))
    rho = jnp.where(is_safe(low), low, high)
    each, one, any_ = overlap(rho)
    taken = each * (any_ / jnp.where(one > 0, one, 1))[:, None]
    return rho, base.residual(p, taken)
