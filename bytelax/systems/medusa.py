"""Medusa: multi-byte heads draft all bytes at once, as a chain or a tree.

Source: Cai et al., arXiv 2401.10774.
"""

import dataclasses
import itertools
import operator

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.decode import sampling, trees
from bytelax.decode.draft import draft_of, draw, in_a_row
from bytelax.decode.drafter import Drafter, expect
from bytelax.decode.method import Method
from bytelax.decode.target import Branching
from bytelax.decode.trees import Tree
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, head, parameter, with_specials
from bytelax.options import Medusa
from bytelax.systems.fitting import Model, expect_heads
from bytelax.systems.trained import Drafted, Texts, bound, texts_like
from bytelax.targets.module_target import ModuleTarget, kept_state

# The network


class MedusaNetwork(nn.Module):
    """Heads on the final hidden state; head i predicts the byte i + 2 positions ahead.

    Attributes:
      dim: width of the states.
      values: number of byte values.
      count: number of heads.
      has_correction: whether they add a table indexed by the byte before the predicted one.
      execution: how the heads run.
    """

    dim: int
    values: int
    count: int
    has_correction: bool
    execution: Execution = Execution()

    def setup(self):
        self.ahead = [MedusaHead(self.dim, self.values, self.execution) for _ in range(self.count)]
        if self.has_correction:
            shape = (self.count, self.values, self.values)
            zeros, axes = nn.initializers.zeros, (None, "byte", "byte")
            self.correction = parameter(self, "correction", zeros, shape, axes)

    def predict(
        self, index: int, hidden: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B V"]:
        """Computes the logits of one head.

        Args:
          index: index of the head, from 0.
          hidden: final hidden states, after the trunk's final norm.
          before: id of the byte before the predicted one, for the correction table.
        """
        logits = self.ahead[index](hidden)
        if self.has_correction:
            logits += self.correction[index][jnp.maximum(before - vocab.OFFSET, 0)]
        return with_specials(logits)

    def __call__(
        self, hidden: Float[Array, "B S D"], ids: Int[Array, "B L"]
    ) -> list[Float[Array, "B _ V"]]:
        """Computes the logits of all heads over whole texts, where the text has their bytes.

        Args:
          hidden: final hidden states, after the trunk's final norm, of the first bytes.
          ids: the texts.
        """
        lengths = [max(ids.shape[1] - 2 - index, 0) for index in range(self.count)]
        return [
            self.predict(index, hidden[:, :length], ids[:, 1 + index : 1 + index + length])
            for index, length in enumerate(lengths)
        ]


class MedusaHead(nn.Module):
    """W (h + silu(U h)), with U initialized to zero; section 2.1.1 of the paper."""

    dim: int
    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, hidden: Float[Array, "*B D"]) -> Float[Array, "*B N"]:
        """Computes float32 logits of byte values from final hidden states."""
        zeros = nn.initializers.zeros
        step = Dense((self.dim,), ("embed", None), self.execution, zeros, name="step")
        hidden = hidden + nn.silu(step(hidden))
        return head(self.values, self.execution, name="out")(hidden).astype(jnp.float32)


def network(config: ModelConfig, execution: Execution) -> MedusaNetwork:
    """Returns the network of a model."""
    sizes, values = config.networks.medusa, config.vocab_size - vocab.OFFSET
    return MedusaNetwork(config.trunk.dim, values, sizes.count, sizes.correction, execution)


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, _, ids = texts_like(config)
    return states[-1], jnp.pad(ids, ((0, 0), (0, 1)))


# Its loss


def loss(network: MedusaNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions of all heads."""
    final = texts.model.norm(texts.hidden[-1])
    drafted = []
    for index, logits in enumerate(network(final, texts.ids)):
        byte = jnp.arange(logits.shape[1])[None] + index + 2
        drafted.append(Drafted(f"medusa_{index + 1}", index + 1, logits, byte))
    return drafted


# The drafters


@dataclasses.dataclass(frozen=True)
class MedusaDrafter(Drafter):
    """Drafts one byte per head, without a forward pass of its own.

    The heads read the final hidden state of the byte before the pending one, from the verification
    of the last round.

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
        return draft_of(in_a_row(*drawn)), draft_state


@dataclasses.dataclass(frozen=True)
class MedusaTreeDrafter(Drafter):
    """Drafts a tree: the likeliest children of each node, pruned to the likeliest nodes.

    The heads are those of `MedusaDrafter`. The tree is deterministic, so `trees.Tree` verifies it
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
    def draft_length(self) -> int:  # type: ignore[override]  # follows from the fields
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
    many = target.module.config.networks.medusa.count
    expect_heads(many, "multi-byte heads")
    if not 1 <= depth <= many:
        raise ValueError(
            f"the model has {many} multi-byte heads, a draft of {depth} bytes needs {depth}"
        )
    return target.keeping(target.module.config.trunk.layers)


def _heads(inputs):
    """Returns a function from a head's index and the ids [B, N] before its byte to logits."""
    model = inputs.model
    heads = bound(inputs, network, "medusa")
    newest = inputs.state.length[:, None] - 1
    final = model.norm(kept_state(inputs, model.config.trunk.layers, newest))

    def logits_of(index, before):
        hidden = jnp.broadcast_to(final, (*before.shape, final.shape[-1]))
        return heads.predict(index, hidden, before)

    return logits_of


def build(options: Medusa, model: Model) -> Method:
    """Returns the method that its options describe."""
    length, branches, nodes = options.draft_length, tuple(options.branches), options.nodes
    if not branches:
        ahead = model.config.networks.medusa.count
        return Method(model.target(), MedusaDrafter(ahead if length is None else length))
    if length is not None:
        raise ValueError("a tree takes its depth from branches: no draft_length")
    values = model.config.vocab_size - vocab.OFFSET
    if nodes < 1 or not all(1 <= children <= values for children in branches):
        raise ValueError(
            f"a node has 1..{values} branches, a tree 1 node or more; got {branches}, nodes {nodes}"
        )
    whole = sum(itertools.accumulate(branches, operator.mul))
    return Method(model.target(), MedusaTreeDrafter(branches, min(nodes, whole)))
