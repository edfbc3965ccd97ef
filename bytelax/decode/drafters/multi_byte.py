"""Heads on the latest state predict several bytes at once: a chain or a tree of them."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode import sampling, trees
from bytelax.decode.drafters.base import no_passes
from bytelax.decode.drafters.drawn import draft_of, draw, in_a_row
from bytelax.decode.targets.byte_lm import ByteLMTarget


@dataclasses.dataclass(frozen=True)
class MultiByte:
    """Drafts one byte a head, without a pass of its own.

    Medusa (Cai et al., arXiv 2401.10774). The heads read the final state of the byte before the
    pending one, which the verifying pass of the round before left.

    Attributes:
      target: the target that the loop extends; it keeps the state behind its last block.
      depth: heads that are used, and bytes that are drafted.
    """

    target: ByteLMTarget
    depth: int

    def __post_init__(self):
        _check(self.target, self.depth)

    @property
    def width(self) -> int:
        return self.depth

    def init(self, params, text, state):
        return ()

    def propose(self, params, draft_state, text, state, key):
        law = params["law"]
        logits_of = _heads(self, params, state)
        uniforms = sampling.row_uniforms(key, self.depth)
        ids, drawn = text.pending, []
        for index in range(self.depth):
            drawn.append(draw(logits_of(index, ids), law, uniforms[:, index : index + 1]))
            ids = drawn[-1].ids
        step, passes = jnp.ones(self.depth, jnp.int32), no_passes(len(text.length))
        return draft_of(in_a_row(*drawn), law, step=step, passes=passes), draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state


@dataclasses.dataclass(frozen=True)
class MultiByteTree:
    """The same as a tree: of every node the likeliest children, and of all nodes the likeliest.

    Nothing is drawn, so the tree is judged by `acceptance.Tree`, at any temperature.

    Attributes:
      target: as in `MultiByte`.
      branches: children of a node, one number a level.
      nodes: how many nodes are kept, those whose branch is likeliest by the heads.
    """

    target: ByteLMTarget
    branches: tuple[int, ...]
    nodes: int

    def __post_init__(self):
        _check(self.target, len(self.branches))
        if min(self.branches) < 1 or self.nodes < 1:
            raise ValueError(f"a tree needs children and nodes, got {self.branches}, {self.nodes}")

    @property
    def width(self) -> int:
        return self.nodes

    def init(self, params, text, state):
        return ()

    def propose(self, params, draft_state, text, state, key):
        logits_of = _heads(self, params, state)
        grown = trees.root(text.pending)
        level = slice(0, 1)
        for index, children in enumerate(self.branches):
            log_probs = sampling.byte_law(logits_of(index, grown.ids[:, level]), params["law"])
            grown, level = trees.grow(grown, log_probs, level, children=children)
        return trees.draft(trees.prune(grown, self.nodes), log_probs.shape[-1]), draft_state

    def commit(self, params, draft_state, trial, count):
        return draft_state


def _check(target, depth):
    heads = target.module.config.heads
    many = heads.bytes_ahead if heads else 0
    if not 1 <= depth <= many:
        raise ValueError(
            f"the model has {many} multi-byte heads, a draft of {depth} bytes needs as many; "
            "`bytelax train heads` trains them"
        )
    if target.module.config.trunk.layers not in target.keep:
        raise ValueError("multi-byte heads need a target that keeps its last hidden state")


def _heads(drafter, params, state):
    """From a head's index and the ids before its byte, [B, N], to its logits, [B, N, V]."""
    model = drafter.target.module.bind({"params": params["target"]})
    layers = drafter.target.module.config.trunk.layers
    final = model.norm(state.hidden[drafter.target.keep.index(layers)])[:, None]

    def logits_of(index, before):
        hidden = jnp.broadcast_to(final, (*before.shape, final.shape[-1]))
        return model.heads.ahead(index, hidden, before)

    return logits_of
