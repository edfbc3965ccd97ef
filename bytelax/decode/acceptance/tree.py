"""Acceptance of a tree of drafted bytes."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import sampling
from bytelax.decode.acceptance.base import Emitted
from bytelax.decode.draft import Draft


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
