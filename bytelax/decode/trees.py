"""Trees of drafted bytes: their ancestors, their growth, and the branch that was accepted.

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
    assert draft.parents is not None and draft.step is not None  # a tree, written out
    there = jnp.arange(draft.ids.shape[1]) < draft.length[:, None]
    deepest = jnp.where(there, depths(draft.parents)[:, 1:], 0).max(1)
    place = jnp.maximum(path[:, 1:] - 1, 0)
    return dataclasses.replace(
        draft,
        ids=jnp.take_along_axis(draft.ids, place, axis=1),
        step=jnp.take_along_axis(draft.step, place, axis=1),
        length=deepest,
        parents=None,
    )


class Grown(NamedTuple):
    """A tree that is being grown. Parents precede their children; the root is the pending byte."""

    ids: Int[Array, "B N"]
    parents: Int[Array, "B N"]  # indices of nodes; the root is its own parent
    scores: Float[Array, "B N"]  # the drafter's log-probability of the path to the node, nats
    depth: Int[Array, "B N"]


def root(pending: Int[Array, "B 1"]) -> Grown:
    """Returns the tree that consists of the pending byte only."""
    nothing = jnp.zeros_like(pending)
    return Grown(pending, nothing, jnp.zeros(pending.shape, jnp.float32), nothing)


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
    new = Grown(
        ids,
        jnp.broadcast_to(above, ids.shape),
        scores,
        jnp.broadcast_to(tree.depth[:, level, None] + 1, ids.shape),
    )
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
    return dataclasses.replace(
        found, step=tree.depth[:, 1:], passes=passes, parents=tree.parents[:, 1:]
    )
