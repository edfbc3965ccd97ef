"""Trees of drafted bytes: their ancestors, their growth, and the rules that accept a branch.

A tree is a window of nodes whose root is the pending byte. `parents[b, j]` is the window index of
the parent of node j + 1, which precedes it in the window. A chain is the tree with
`parents[b, j] == j`.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode import acceptance, sampling
from bytelax.decode.acceptance import Emitted
from bytelax.decode.draft import Draft, DraftPasses, certain


def ancestors(parents: Int[Array, "B K"]) -> Bool[Array, "B W W"]:
    """Returns the ancestor mask of a tree, for tree attention.

    Entry [b, i, j] is True if node j is node i or one of its ancestors. W = K + 1, and the root is
    node 0.
    """
    width = parents.shape[1] + 1
    above = jnp.pad(parents[..., None] == jnp.arange(width), ((0, 0), (1, 0), (0, 0)))
    reach = (above | jnp.eye(width, dtype=bool)).astype(jnp.int32)
    # Repeated squaring doubles the reach each time.
    for _ in range(math.ceil(math.log2(width))):
        reach = jnp.minimum(reach @ reach, 1)
    return reach.astype(bool)


def depths(parents: Int[Array, "B K"]) -> Int[Array, "B W"]:
    """Returns the depth of each node; the root has depth 0."""
    return ancestors(parents).sum(-1) - 1


def along(draft: Draft, path: Int[Array, "B W"]) -> Draft:
    """Converts one branch of a tree to a chain, whose length is the depth of the tree.

    Args:
      draft: a tree.
      path: window indices of the branch, beginning with the root's; entries beyond the branch are
        never read.
    """
    assert draft.parents is not None  # a tree
    there = jnp.arange(draft.ids.shape[1]) < draft.length[:, None]
    deepest = jnp.where(there, depths(draft.parents)[:, 1:], 0).max(1)
    place = jnp.maximum(path[:, 1:] - 1, 0)
    return dataclasses.replace(
        draft,
        ids=jnp.take_along_axis(draft.ids, place, axis=1),
        length=deepest,
        parents=None,
    )


class Grown(NamedTuple):
    """A tree that is being grown. Parents precede their children; the root is the pending byte."""

    ids: Int[Array, "B N"]
    parents: Int[Array, "B N"]  # indices of nodes; the root is its own parent
    scores: Float[Array, "B N"]  # the drafter's log-probability of the path to the node, nats


def root(pending: Int[Array, "B 1"]) -> Grown:
    """Returns the tree that consists of the pending byte only."""
    return Grown(pending, jnp.zeros_like(pending), jnp.zeros(pending.shape, jnp.float32))


def grow(
    tree: Grown,
    log_probs: Float[Array, "B M V"],
    level: slice,
    *,
    children: int,
    most: int | None = None,
) -> tuple[Grown, slice]:
    """Adds the likeliest children of every node of one level.

    Args:
      tree: the tree to grow.
      log_probs: the drafter's distributions of the byte after each of the M nodes of the level.
      level: indices of those M nodes.
      children: number of children per node.
      most: number of new nodes to keep, those of highest path probability; None keeps all.

    Returns:
      The tree, and the indices of the new level.
    """
    begin, end = level.start, tree.ids.shape[1]
    best, ids = jax.lax.top_k(log_probs, children)
    scores = tree.scores[:, level, None] + best
    above = jnp.broadcast_to(begin + jnp.arange(best.shape[1])[:, None], ids.shape[1:])
    new = Grown(ids, jnp.broadcast_to(above, ids.shape), scores)
    new = Grown(*(x.reshape(x.shape[0], -1) for x in new))
    if most is not None and most < new.ids.shape[1]:
        _, picked = jax.lax.top_k(new.scores, most)
        new = Grown(*(jnp.take_along_axis(x, picked, axis=1) for x in new))
    tree = Grown(*(jnp.concatenate(both, axis=1) for both in zip(tree, new, strict=True)))
    return tree, slice(end, tree.ids.shape[1])


def prune(tree: Grown, nodes: int) -> Grown:
    """Keeps the root and the `nodes` nodes of highest path probability."""
    if nodes >= tree.ids.shape[1] - 1:
        return tree
    # A child is never likelier than its parent. In a tie top_k takes the first, which is the
    # parent, so that no node is kept without its parent.
    _, picked = jax.lax.top_k(tree.scores.at[:, 0].set(jnp.inf), nodes + 1)
    picked = jnp.sort(picked, axis=1)
    tree = Grown(*(jnp.take_along_axis(x, picked, axis=1) for x in tree))
    place = jax.vmap(jnp.searchsorted)(picked, tree.parents)
    return tree._replace(parents=place)


def draft(tree: Grown, *, passes: DraftPasses | None = None) -> Draft:
    """Converts the grown tree to a deterministic `Draft`."""
    found = certain(tree.ids[:, 1:])
    return dataclasses.replace(found, passes=passes, parents=tree.parents[:, 1:])


@dataclasses.dataclass(frozen=True)
class Tree:
    """Descends a tree by sampling the target's byte at each node and following the matching child.

    For deterministic children this is the rule of SpecInfer (Miao et al., arXiv 2305.09781) and
    EAGLE, which try the children in turn: child x is accepted with probability p(x) in total.
    Lossless, because every emitted byte is a sample from the target's distribution, which is
    one-hot under greedy sampling.

    Attributes:
      depth: number of levels of the tree below its root.
    """

    depth: int

    lossless = trees = True

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        """As in `Acceptance`; row i of `log_probs` is the distribution after window index i."""
        batch, drafted = draft.ids.shape
        depth = min(self.depth, drafted)  # a tree has no more levels than nodes
        there = jnp.arange(drafted) < draft.length[:, None]
        node = jnp.zeros(batch, jnp.int32)
        going = jnp.ones(batch, bool)
        accepted = jnp.zeros(batch, jnp.int32)
        path, emitted = [node], []
        for level in range(depth + 1):
            chosen = jnp.take_along_axis(log_probs, node[:, None, None], axis=1)[:, 0]
            own = sampling.sample(chosen, uniforms[:, 1, level])
            emitted.append(own)
            child = there & (draft.parents == node[:, None]) & (draft.ids == own[:, None])
            going &= child.any(1) & (level < depth)
            node = jnp.where(going, child.argmax(1).astype(jnp.int32) + 1, node)
            accepted += going
            path.append(node)
        rest = drafted + 1 - len(emitted)
        ids = jnp.pad(jnp.stack(emitted, axis=1), ((0, 0), (0, rest)))
        branch = jnp.pad(jnp.stack(path[:-1], axis=1), ((0, 0), (0, rest)))
        return Emitted(ids, accepted + 1, accepted, branch)


_HALVINGS = 16


def k_seq(
    drafts: Draft,
    log_probs: Float[Array, "N B W V"],
    uniforms: Float[Array, "B M W"],
) -> tuple[Emitted, Int[Array, " B"]]:
    """Verifies several independent drafts per row and follows one of them (k-SEQ). Lossless.

    SpecTr (Sun et al., arXiv 2310.15141). Drafts are verified position by position, and only those
    that share the accepted prefix remain candidates. The n candidates x of a position are tried in
    turn, and each is accepted with probability min(1, p(x) / (rho q(x))). Let b =
    sum_x min(q(x), p(x) / rho). Then x is accepted with probability
    min(q(x), p(x) / rho) (1 - (1 - b)^n) / b in total, and the residual distribution after n
    rejections is p minus that. This requires 1 - (1 - b)^n <= rho b, which holds for every rho from
    some value in [1, n] on. The smallest such rho accepts the most. Bisection approaches it from
    above, so that stopping early lowers acceptance but never changes the distribution. With a
    single draft this is `rejection`.

    Args:
      drafts: drafts with a leading axis N in every leaf, sampled independently from the same
        distribution for each row. Their lengths may differ, as long as the length of a draft does
        not depend on bytes beyond its end.
      log_probs: the target's distributions along each draft, in nats. They are equal where drafts
        share a prefix.
      uniforms: random numbers in [0, 1), with M = N + 1. `[:, n]` decide acceptance of draft n, and
        `[:, N]` draw the byte that follows.

    Returns:
      The emitted ids, as from a rule for one draft; and the index i32[B] of a draft that begins
        with all accepted ids.
    """
    drafts = jax.vmap(acceptance.drawn)(drafts)
    many, batch, places = drafts.ids.shape
    # One more position, where nothing is drafted: that of the bonus byte.
    by_place = {
        "ids": jnp.pad(jnp.moveaxis(drafts.ids, 2, 0), ((0, 1), (0, 0), (0, 0))),
        "p": jnp.exp(jnp.moveaxis(log_probs, 2, 0)),
        "q": jnp.pad(
            jnp.exp(jnp.moveaxis(acceptance.log_probs_of(drafts), 2, 0)), ((0, 1), *((0, 0),) * 3)
        ),
        "there": jnp.arange(places + 1)[:, None, None] < drafts.length,
        "uniforms": jnp.moveaxis(uniforms[:, :many], 2, 0),
    }

    def place(carry, now):
        shares, going, count, following = carry  # shares: bool[N, B], has the accepted bytes
        candidates = shares & now["there"]
        p = _of(now["p"], shares.argmax(0))
        q = jnp.where(candidates.any(0)[:, None], _of(now["q"], candidates.argmax(0)), 0)
        rho, left = _rho_and_residual(p, q, candidates.sum(0))
        at_p = jnp.take_along_axis(p, now["ids"].T, axis=1)
        at_q = jnp.take_along_axis(q, now["ids"].T, axis=1)
        # If p(x) = 1, the residual is x too: accept x at once, so that its draft goes on.
        chance = jnp.where(at_p < 1, at_p / (rho[:, None] * at_q), 1)
        accepted = candidates.T & sampling.happens(chance, now["uniforms"])
        chosen = jnp.take_along_axis(now["ids"].T, accepted.argmax(1)[:, None], axis=1)[:, 0]
        onward = going & accepted.any(1)
        shares = jnp.where(onward, candidates & (now["ids"] == chosen), shares)
        following = jnp.where((going & ~onward)[:, None], left, following)
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
    every = jnp.broadcast_to(following[:, None], log_probs.shape[1:])
    return acceptance.follow(draft, count, every, uniforms[:, many]), followed


@dataclasses.dataclass(frozen=True)
class KSeq:
    """Applies `k_seq` to the drafts of `drafters.ParallelDrafts`, and to no other trees.

    Position j of draft n is node j * many + n of the tree.

    Attributes:
      many: number of drafts per row.
    """

    many: int

    lossless = trees = True

    def judges(self, drafter) -> bool:
        """Whether the drafts of this drafter are independent, `many`, and laid out as above."""
        return drafter.judged_by == self

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        batch, drafted = draft.ids.shape
        places = drafted // self.many  # a wider window adds some, and may leave a rest
        nodes = places * self.many

        def apart(x):
            each = x[:, :nodes].reshape(batch, places, self.many, *x.shape[2:])
            return jnp.moveaxis(each, 2, 0)

        drafts = dataclasses.replace(
            draft,
            ids=apart(draft.ids),
            length=jnp.broadcast_to(draft.length // self.many, (self.many, batch)),
            log_probs=apart(draft.log_probs),
            passes=jax.tree.map(lambda x: jnp.broadcast_to(x, (self.many, batch)), draft.passes),
            parents=None,
        )
        roots = jnp.broadcast_to(log_probs[:, :1], (self.many, batch, 1, log_probs.shape[-1]))
        target = jnp.concatenate([roots, apart(log_probs[:, 1:])], axis=2)
        # One stream per draft, whose last entry is unused, and one for the byte that follows.
        judging = uniforms[:, 0, :nodes].reshape(batch, self.many, places)
        judging = jnp.pad(judging, ((0, 0), (0, 0), (0, 1)), mode="edge")
        streams = jnp.concatenate([judging, uniforms[:, 1:, : places + 1]], axis=1)
        emitted, followed = k_seq(drafts, target, streams)
        path = 1 + followed[:, None] + self.many * jnp.arange(places)
        path = jnp.pad(path, ((0, 0), (1, drafted - places)))
        ids = jnp.pad(emitted.ids, ((0, 0), (0, drafted - places)))
        return emitted._replace(ids=ids, path=path)


def _of(values, which):
    """Returns f32[B, V], each row's distribution along one of its drafts, from f32[N, B, V]."""
    return values[which, jnp.arange(which.shape[0])]


def _rho_and_residual(p, q, many):
    """Returns rho f32[B] for `many` candidates and, if all are rejected, log residual f32[B, V]."""

    def overlap(rho):
        """Returns min(q, p / rho), its sum b, and 1 - (1 - b)^n."""
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
    return rho, acceptance.residual(p, taken)
