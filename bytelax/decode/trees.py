"""Trees of drafted bytes: ancestors, growth, and the branch that was accepted.

A tree is a window of nodes, its root the pending byte; `parents[b, j]` is the window place of the
parent of node j + 1, and comes before it. A chain is the tree in which that is j.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax.decode.draft import Draft, DraftPasses, certain


def ancestors(parents: Int[Array, "B K"]) -> Bool[Array, "B W W"]:
    """[b, i, j]: node j is node i or above it. W = K + 1."""
    width = parents.shape[1] + 1
    above = jnp.pad(parents[..., None] == jnp.arange(width), ((0, 0), (1, 0), (0, 0)))
    reach = (above | jnp.eye(width, dtype=bool)).astype(jnp.int32)
    # Steps of twice the length each time.
    for _ in range(math.ceil(math.log2(width))):
        reach = jnp.minimum(reach @ reach, 1)
    return reach.astype(bool)


def depths(parents: Int[Array, "B K"]) -> Int[Array, "B W"]:
    """Depth of each node; the root has 0."""
    return ancestors(parents).sum(-1) - 1


def along(draft: Draft, path: Int[Array, "B W"]) -> Draft:
    """Converts one branch of a tree to a chain, as long as the tree is deep.

    Args:
      draft: a tree.
      path: window places, the root's first; what stands beyond the branch is never read.
    """
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
    """A growing tree. Parents precede their children; the root is the pending byte."""

    ids: Int[Array, "B N"]
    parents: Int[Array, "B N"]  # places; the root is its own
    scores: Float[Array, "B N"]  # log-probability of the branch down to the node, by the drafter
    depth: Int[Array, "B N"]


def root(pending: Int[Array, "B 1"]) -> Grown:
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
    """Adds the likeliest children of the nodes of a level.

    Args:
      tree: to be grown.
      log_probs: the drafter's laws of what follows the nodes of the level.
      level: places of those M nodes.
      children: of each node.
      most: of the new nodes, keep those whose branches are likeliest; None keeps all.

    Returns:
      The tree, and the places of the new level.
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
    # Of equals top_k takes the first, and a parent comes before its children.
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
