"""EAGLE: one trained layer drafts from features of the whole model, byte by byte or as a tree.

Source: EAGLE-3, Li et al., arXiv 2503.01840; the trees are those of EAGLE-2, arXiv 2406.16858.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.decode import sampling, trees
from bytelax.decode.draft import Draft, draft_of, draw, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafter import expect
from bytelax.decode.method import Method
from bytelax.decode.target import Branching
from bytelax.decode.trees import Tree
from bytelax.models import kv_cache
from bytelax.models.configs import ModelConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import RMSNorm, with_specials
from bytelax.models.pytree import pytree
from bytelax.models.transformer import Transformer
from bytelax.options import Eagle
from bytelax.systems.draft_stack import DraftStack, StackDrafter, no_keys
from bytelax.systems.fitting import Model, checked_length
from bytelax.systems.trained import Drafted, Texts, bound, texts_like

# The network


class EagleNetwork(DraftStack):
    """One block that predicts bytes from fused states or its own outputs.

    The fused states are a low, a middle and a high one. The block reads their feature together
    with the embedding of the byte that followed. When it drafts further bytes, its own outputs take
    the place of the features.
    """

    def setup(self):
        self.make_shared()
        self.feature_norm = RMSNorm(self.trunk.norm_eps)
        self.block = Transformer(self.trunk, self.execution)

    def step(
        self,
        feature: Float[Array, "B W D"],
        embedded: Float[Array, "B W E"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B W V"], Float[Array, "B W D"], Caches | None]:
        """Runs the block over a window.

        Args:
          feature: feature of each byte, from `fuse`, or an earlier output of this block.
          embedded: the trunk's embedding of the byte that followed each of these bytes.
          caches: caches of the block.
          span: positions of the features' bytes.

        Returns:
          Logits of the byte after each embedded one, the next features, and the caches.
        """
        x, caches = self.block(self._joined(feature, embedded), caches, span=span)
        return self._logits(x), x, caches

    def __call__(
        self,
        states: tuple[Float[Array, "B S _"], ...],
        embedded: Float[Array, "B S E"],
        steps: int = 1,
    ) -> list[Float[Array, "B S V"]]:
        """Runs the steps of drafting over whole texts, for training.

        The first step reads fused features. Step j > 0 at byte t reads the output of step j - 1 at
        byte t - 1. It attends to fused features up to byte t - j, and after them to one byte of
        each later step: what the cache holds once j bytes have been drafted.

        Args:
          states: states of each byte, to be fused.
          embedded: the trunk's embedding of the byte that followed.
          steps: number of drafting steps.

        Returns:
          Logits of the byte after the embedded one, for each step.
        """
        features = self.fuse(*states)
        positions = jnp.broadcast_to(jnp.arange(features.shape[1]), features.shape[:2])
        attend = functools.partial(_attend_to_own_outputs, window=self.trunk.window)
        before: Any = ()  # keys and values of the steps so far
        outputs = []
        for _ in range(steps):
            joined = self._joined(features, embedded)
            x, before = self.block.layers[0](joined, before, positions=positions, attend=attend)
            outputs.append(self._logits(x))
            features = jnp.roll(x, 1, axis=1)
        return outputs

    def _joined(self, feature, embedded):
        pair = [self.feature_norm(feature), self.embedding_norm(embedded)]
        return self.inward(jnp.concatenate(pair, axis=-1))

    def _logits(self, x):
        return with_specials(self.out(self.norm(x)).astype(jnp.float32))


def _attend_to_own_outputs(projections, before, *, window):
    """An `Attend` for whole texts; its cache holds keys and values of earlier steps in order."""
    queries, keys, values = projections.rotated()
    steps = (*before, (keys, values))
    age = len(steps) - 1
    length, heads, dim = queries.shape[1:]
    group = heads // keys.shape[2]

    def of_heads(x):
        return jnp.repeat(x, group, axis=2)

    place = jnp.arange(length)
    back = place[:, None] - place  # distance from each query back to each key
    seen = (back >= age) & (back < (window or length))
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, of_heads(steps[0][0]))
    scores = jnp.where(seen, scores.astype(jnp.float32), -jnp.inf)
    own = [
        [of_heads(jnp.roll(x, age - index, axis=1)) for x in step]
        for index, step in enumerate(steps[1:], 1)
    ]
    diagonal = [jnp.einsum("bqhd,bqhd->bhq", queries, k).astype(jnp.float32) for k, _ in own]
    scores = jnp.concatenate([scores, *(x[..., None] for x in diagonal)], axis=-1)
    # A query that attends to nothing lies before the text, and its loss is not counted.
    weights = jax.nn.softmax(jnp.maximum(scores * dim**-0.5, -1e30)).astype(queries.dtype)
    attended = jnp.einsum("bhqk,bkhd->bqhd", weights[..., :length], of_heads(steps[0][1]))
    for index, (_, v) in enumerate(own):
        attended += weights[..., length + index].swapaxes(1, 2)[..., None] * v
    return attended, steps


def network(config: ModelConfig, execution: Execution) -> EagleNetwork:
    """Returns the network of a model."""
    sizes, values = config.networks.eagle, config.vocab_size - vocab.OFFSET
    stack = sizes.stack(config.trunk)
    return EagleNetwork(stack, values, sizes.latent, execution)


def example(config: ModelConfig) -> tuple:
    """Returns arguments to initialise the network with."""
    states, embedded, _ = texts_like(config)
    return tuple(states[depth] for depth in config.networks.eagle.fused), embedded


# Its loss


def loss(network: EagleNetwork, texts: Texts) -> list[Drafted]:
    """Returns the predictions for whole texts, step by step of a draft.

    How far they are from the model's is judged for all heads alike, in `training.head_objective`.
    """
    states = tuple(texts.hidden[n][:, :-1] for n in texts.model.config.networks.eagle.fused)
    byte = jnp.arange(2, texts.ids.shape[1])[None]
    found = network(states, texts.embedded[:, :-1], texts.own_outputs)
    return [
        # The first positions of later steps would read outputs from before the text.
        Drafted(f"eagle_{step + 1}", step + 1, logits[:, step:], byte[:, step:])
        for step, logits in enumerate(found)
    ]


# The drafter


@pytree
class EagleState:
    """The block's cache before position `start`, and the target's features from there on.

    For byte t, the block's input is the feature of byte t paired with the embedding of byte t + 1.
    The features of the last window therefore wait until the bytes after it are known, which is at
    the next draft.
    """

    caches: Caches
    features: Float[Array, "B W D"]
    start: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class EagleDrafter(StackDrafter):
    """Drafts byte by byte with one trained block, which reads its own output for the byte before.

    If another drafter's bytes were verified in a round, the cache misses them: later drafts get
    worse, but the output stays the same.

    Attributes:
      draft_length: K, number of bytes drafted.
      beam: 1 drafts a chain. A larger value drafts a tree: every node has `beam` children, each
        level expands the `beam` nodes of highest path probability, and the K most probable nodes
        of the whole tree are verified.
      depth: number of levels of the tree.
    """

    draft_length: int
    beam: int = 1
    depth: int | None = None

    system = "eagle"

    def __post_init__(self):
        if self.beam > 1 and not self.depth:
            raise ValueError("a tree needs a depth")

    @property
    def judged_by(self) -> Tree | None:
        return Tree(self.depth) if self.beam > 1 and self.depth else None

    def fit(self, target):
        target = super().fit(target)
        if self.beam > 1:
            expect(target, Branching, self)
        return target

    def init(self, inputs):
        model, text = inputs.model, inputs.text
        layer, window = bound(inputs, network, "eagle"), inputs.target.window
        features, places = self._latest(inputs, layer)
        following = jnp.take_along_axis(text.ids, places + 1, axis=1)
        # Of the last window and the next draft.
        ahead = window + max(self.draft_length, self.beam * (self.depth or 0)) + 1
        empty = no_keys(layer.trunk, text, ahead=ahead, dtype=features.dtype)
        span = kv_cache.causal_span(places, window=layer.trunk.window)
        _, _, caches = layer.step(features, model.embed(following), empty, span=span)
        assert caches is not None  # as caches were passed
        features = jnp.pad(features[:, -1:], ((0, 0), (0, window - 1), (0, 0)))
        return EagleState(caches, features, jnp.maximum(text.length - 2, 0))

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        layer = bound(inputs, network, "eagle")
        logits, feature, caches = self._catch_up(inputs, draft_state)
        if self.beam > 1:
            draft, caches = self._tree(inputs, logits, feature, caches)
            return draft, dataclasses.replace(draft_state, caches=caches)

        uniforms = inputs.uniforms(self.draft_length)

        def step(carry, now):
            logits, feature, caches = carry
            place, uniform = now
            drawn = draw(logits, inputs.sampling, uniform[:, None])
            span = kv_cache.causal_span(place[:, None], window=layer.trunk.window)
            return layer.step(feature, model.embed(drawn.ids), caches, span=span), drawn

        places = text.length - 1 + jnp.arange(self.draft_length - 1)[:, None]
        carry = logits, feature, caches
        (logits, _, caches), most = scan(step, carry, (places, uniforms[:, :-1].T))
        made = jnp.full(len(text.length), self.draft_length)
        draft = draft_of(
            in_a_row(scanned(most), draw(logits, inputs.sampling, uniforms[:, -1:])),
            passes=no_passes(len(made))._replace(draft_model=made),
        )
        return draft, dataclasses.replace(draft_state, caches=caches)

    def commit(self, inputs, draft_state, trial, count):
        kept = (count > 0)[:, None, None]
        features = jnp.where(
            kept, self._new(inputs, bound(inputs, network, "eagle"), trial), draft_state.features
        )
        return dataclasses.replace(
            draft_state,
            features=features,
            start=jnp.where(count > 0, trial.state.length, draft_state.start),
        )

    def _catch_up(self, inputs, draft_state):
        """Processes the last window; returns the pending byte's logits, its feature, the caches."""
        model, text = inputs.model, inputs.text
        place = draft_state.start[:, None] + jnp.arange(draft_state.features.shape[1])
        following = jnp.take_along_axis(text.ids, place + 1, axis=1, mode="clip")
        following = jnp.where(place + 1 < text.length[:, None], following, vocab.BOE)
        layer = bound(inputs, network, "eagle")
        span = kv_cache.causal_span(place, window=layer.trunk.window)
        logits, features, caches = layer.step(
            draft_state.features, model.embed(following), draft_state.caches, span=span
        )
        newest = (text.length - 2 - draft_state.start)[:, None, None]
        newest = jnp.clip(newest, 0, place.shape[1] - 1)
        logits = jnp.take_along_axis(logits, newest, axis=1)
        return logits, jnp.take_along_axis(features, newest, axis=1), caches

    def _tree(self, inputs, logits, feature, caches) -> tuple[Draft, Caches]:
        """Grows the tree level by level. Each pass runs all nodes again, as one block is cheap."""
        model, text = inputs.model, inputs.text
        layer = bound(inputs, network, "eagle")
        assert self.depth is not None
        tree, level = trees.root(text.pending), slice(0, 1)
        log_probs, made = sampling.byte_log_probs(logits, inputs.sampling), feature
        for depth in range(self.depth):
            tree, level = trees.grow(
                tree, log_probs, level, children=self.beam, most=self.beam if depth else None
            )
            if depth == self.depth - 1:
                break
            # The input of node i is the feature computed for its parent, and its own byte.
            read = jnp.take_along_axis(made, tree.parents[:, 1:, None], axis=1)
            above = trees.ancestors(tree.parents[:, 1:])[:, 1:, 1:]
            span = kv_cache.tree_span(text.length - 1, above, window=layer.trunk.window)
            embedded = model.embed(tree.ids[:, 1:])
            below, features, caches = layer.step(read, embedded, caches, span=span)
            made = jnp.concatenate([feature, features], axis=1)
            log_probs = sampling.byte_log_probs(below[:, level.start - 1 :], inputs.sampling)
        tree = trees.prune(tree, self.draft_length)
        passes = no_passes(len(text.length))
        passes = passes._replace(draft_model=passes.draft_model + self.depth)
        return trees.draft(tree, passes=passes), caches


def build(options: Eagle, model: Model) -> Method:
    """Returns the method that its options describe."""
    depth, beam, nodes = checked_length(options.draft_length, model), options.beam, options.nodes
    values = model.config.vocab_size - vocab.OFFSET
    if not 1 <= beam <= values or nodes < 1:
        raise ValueError(
            f"beam and nodes must be at least 1, beam at most {values}; got {beam} and {nodes}"
        )
    if beam == 1:
        drafter = EagleDrafter(depth)
    else:
        drafter = EagleDrafter(min(nodes, beam * depth), beam, depth)
    return Method(model.target(), drafter)
