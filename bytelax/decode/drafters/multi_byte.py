"""Multi-byte heads (Medusa) and two-byte heads: the states of a model predict further bytes."""

import dataclasses

import jax.numpy as jnp

from bytelax.decode import sampling, trees
from bytelax.decode.draft import draft_of, draw, in_a_row
from bytelax.decode.drafters import Stateless, expect, expect_heads, kept_state
from bytelax.decode.target import Branching
from bytelax.decode.targets import ModuleTarget
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.decode.trees import Tree
from bytelax.models.layers import only_bytes


@dataclasses.dataclass(frozen=True)
class MultiByte(Stateless):
    """Drafts one byte per head, without a forward pass of its own.

    Medusa (Cai et al., arXiv 2401.10774). The heads read the final hidden state of the byte before
    the pending one, which the last round's verification left.

    Attributes:
      draft_length: K, number of heads used and of bytes drafted.
    """

    draft_length: int

    def fit(self, target):
        return _fit(self, target, self.draft_length)

    def propose(self, inputs, draft_state):
        logits_of = _heads(inputs)
        uniforms = inputs.uniforms(self.draft_length)
        ids, drawn = inputs.text.pending, []
        for index in range(self.draft_length):
            here = uniforms[:, index : index + 1]
            drawn.append(draw(logits_of(index, ids), inputs.sampling, here))
            ids = drawn[-1].ids
        step = jnp.ones(self.draft_length, jnp.int32)
        return draft_of(in_a_row(*drawn), step=step), draft_state


@dataclasses.dataclass(frozen=True)
class MultiByteTree(Stateless):
    """Drafts a tree: the likeliest children of each node, pruned to the likeliest nodes.

    The heads are those of `MultiByte`. The tree is deterministic, so `trees.Tree` verifies it
    at any temperature.

    Attributes:
      branches: number of children per node, one entry per level.
      nodes: number of nodes kept, those of highest path probability under the heads.
    """

    branches: tuple[int, ...]
    nodes: int

    def __post_init__(self):
        if min(self.branches) < 1 or self.nodes < 1:
            raise ValueError(f"a tree needs children and nodes, got {self.branches}, {self.nodes}")

    @property
    def draft_length(self) -> int:
        return self.nodes

    @property
    def judged_by(self) -> Tree:
        return Tree(len(self.branches))

    def fit(self, target):
        expect(target, Branching, self)
        return _fit(self, target, len(self.branches))

    def propose(self, inputs, draft_state):
        logits_of = _heads(inputs)
        grown = trees.root(inputs.text.pending)
        level = slice(0, 1)
        for index, children in enumerate(self.branches):
            logits = logits_of(index, grown.ids[:, level])
            log_probs = sampling.byte_log_probs(logits, inputs.sampling)
            # Beyond the `nodes` likeliest of a level, none can be among those of the tree.
            grown, level = trees.grow(grown, log_probs, level, children=children, most=self.nodes)
        return trees.draft(trees.prune(grown, self.nodes)), draft_state


def _fit(drafter, target, depth):
    expect(target, ModuleTarget, drafter)
    heads = target.module.config.heads
    many = heads.bytes_ahead if heads else 0
    expect_heads(many, "multi-byte heads")
    if not 1 <= depth <= many:
        raise ValueError(
            f"the model has {many} multi-byte heads, a draft of {depth} bytes needs as many"
        )
    return target.keeping(target.module.config.trunk.layers)


def _heads(inputs):
    """Returns a function from a head's index and the ids [B, N] before its byte to logits."""
    model = inputs.model
    newest = inputs.state.length[:, None] - 1
    final = model.norm(kept_state(inputs, model.config.trunk.layers, newest))

    def logits_of(index, before):
        hidden = jnp.broadcast_to(final, (*before.shape, final.shape[-1]))
        return model.heads.ahead(index, hidden, before)

    return logits_of


@dataclasses.dataclass(frozen=True)
class TwoByte(Stateless):
    """Drafts one byte with a two-byte-ahead head.

    The head reads a hidden state of the byte before the pending one, and the pending byte.

    Attributes:
      depth: number of blocks after which the hidden state is read: all of them, or fewer.
    """

    depth: int

    draft_length = 1

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        heads = target.module.config.heads
        known = heads and self.depth in heads.two_byte
        expect_heads(known, f"two-byte head behind layer {self.depth}")
        return target.keeping(self.depth)

    def propose(self, inputs, draft_state):
        model = inputs.model
        hidden = kept_state(inputs, self.depth, inputs.state.length[:, None] - 1)
        after = model.heads.two_byte(self.depth, hidden, model.embed(inputs.text.pending))
        drawn = draw(only_bytes(model.logits(after)), inputs.sampling, inputs.uniforms(1))
        return draft_of(drawn, step=jnp.ones(1, jnp.int32)), draft_state
