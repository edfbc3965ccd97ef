"""EAGLE: one trained block drafts from the features of the whole model."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling, trees
from bytelax.decode.acceptance import Tree
from bytelax.decode.draft import Draft, no_passes
from bytelax.decode.drafters.base import expect
from bytelax.decode.drafters.drawn import draft_of, draw, in_a_row, scanned
from bytelax.decode.targets.byte_lm import ByteLMTarget
from bytelax.models import kv_cache
from bytelax.models.kv_cache import Caches
from bytelax.pytree import pytree


@pytree
class DraftLayerState:
    """The block's cache up to position `start`, and the target's features of the bytes from there.

    Byte t enters the block as the pair of its feature and the embedding of byte t + 1. So the last
    window is taken in when the bytes behind it are known: at the next draft.
    """

    caches: Caches
    features: Float[Array, "B W D"]
    start: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftLayer:
    """Drafts byte by byte, each from the block's own output for the one before.

    EAGLE-3 (Li et al., arXiv 2503.01840). A round that another drafter drafted leaves the cache
    without that round's bytes: worse drafts, the same output.

    Attributes:
      draft_length: K, bytes drafted.
      beam: 1 drafts a chain. With more it is a tree: a node has that many children, each level
        expands the `beam` nodes of highest path probability (EAGLE-2, arXiv 2406.16858), and the K
        most probable of all nodes are verified.
      depth: levels of a tree.
    """

    draft_length: int
    beam: int = 1
    depth: int | None = None

    def __post_init__(self):
        if self.beam > 1 and not self.depth:
            raise ValueError("a tree needs a depth")

    @property
    def judged_by(self) -> Tree | None:
        return Tree(self.depth) if self.beam > 1 else None

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        fused = _fused(target)
        if not fused:
            raise ValueError("the model has no draft layer; `bytelax train heads` trains one")
        return target.keeping(*fused)

    def init(self, inputs):
        model, text = inputs.model, inputs.text
        ids = text.ids
        batch, length = ids.shape
        span = model.span(ids)
        hidden, _ = model.trunk.states(model.embed(ids), span=span)
        features = model.heads.draft_layer.fuse(*(hidden[d] for d in _fused(inputs.target)))
        following = model.embed(jnp.roll(ids, -1, axis=1))
        empty = _empty(model.config.trunk, batch, length, features.dtype)
        _, _, caches = model.heads.draft_layer(features, following, empty, span=span)
        window = inputs.target.window
        slots = self._slots(model.config.trunk, window, length)
        newest = text.length - 2
        # The slots that a ring would lose are those of the padding.
        caches = tuple(kv_cache.resize(cache, newest, slots) for cache in caches)
        latest = jnp.maximum(newest, 0)[:, None] + jnp.arange(window)
        latest = jnp.take_along_axis(features, latest[..., None], axis=1, mode="clip")
        return DraftLayerState(caches, latest, jnp.maximum(newest, 0))

    def propose(self, inputs, draft_state):
        model, text, law = inputs.model, inputs.text, inputs.sampling
        logits, feature, caches = self._catch_up(model, draft_state, text)
        if self.beam > 1:
            draft, caches = self._tree(model, text, law, logits, feature, caches)
            return draft, dataclasses.replace(draft_state, caches=caches)

        def step(carry, uniform):
            logits, feature, position, caches = carry
            drawn = draw(logits, law, uniform[:, None])
            span = kv_cache.causal_span(position[:, None], window=model.config.trunk.window)
            logits, feature, caches = model.heads.draft_layer(
                feature, model.embed(drawn.ids), caches, span=span
            )
            return (logits, feature, position + 1, caches), drawn

        uniforms = inputs.uniforms(self.draft_length)
        carry = logits, feature, text.length - 1, caches
        (logits, *_, caches), most = jax.lax.scan(step, carry, uniforms[:, :-1].T)
        last = draw(logits, law, uniforms[:, -1:])
        draft = draft_of(
            in_a_row(scanned(most), last),
            step=1 + jnp.arange(self.draft_length),
            passes=_passes(text, self.draft_length),
        )
        return draft, dataclasses.replace(draft_state, caches=caches)

    def commit(self, inputs, draft_state, trial, count):
        model, target = inputs.model, inputs.target
        hidden = (trial.hidden[target.keep.index(d)] for d in _fused(target))
        kept = (count > 0)[:, None, None]
        features = jnp.where(kept, model.heads.draft_layer.fuse(*hidden), draft_state.features)
        return dataclasses.replace(
            draft_state,
            features=features,
            start=jnp.where(count > 0, trial.state.length, draft_state.start),
        )

    def _catch_up(self, model, draft_state, text):
        """Takes in the last window; returns the pending byte's logits, its feature, the caches."""
        place = draft_state.start[:, None] + jnp.arange(draft_state.features.shape[1])
        following = jnp.take_along_axis(text.ids, place + 1, axis=1, mode="clip")
        span = kv_cache.causal_span(place, window=model.config.trunk.window)
        logits, features, caches = model.heads.draft_layer(
            draft_state.features, model.embed(following), draft_state.caches, span=span
        )
        newest = (text.length - 2 - draft_state.start)[:, None, None]
        newest = jnp.clip(newest, 0, place.shape[1] - 1)
        logits = jnp.take_along_axis(logits, newest, axis=1)
        return logits, jnp.take_along_axis(features, newest, axis=1), caches

    def _tree(self, model, text, law, logits, feature, caches) -> tuple[Draft, Caches]:
        """Grows the tree level by level. Every pass runs all nodes: one block is cheap."""
        tree, level = trees.root(text.pending), slice(0, 1)
        laws, made = sampling.byte_law(logits, law), feature
        for depth in range(self.depth):
            tree, level = trees.grow(
                tree, laws, level, children=self.beam, most=self.beam if depth else None
            )
            if depth == self.depth - 1:
                break
            # Node i enters with the feature that its parent's pass gave, and its own byte.
            inputs = jnp.take_along_axis(made, tree.parents[:, 1:, None], axis=1)
            above = trees.ancestors(tree.parents[:, 1:])[:, 1:, 1:]
            span = kv_cache.tree_span(text.length - 1, above, window=model.config.trunk.window)
            below, features, caches = model.heads.draft_layer(
                inputs, model.embed(tree.ids[:, 1:]), caches, span=span
            )
            made = jnp.concatenate([feature, features], axis=1)
            laws = sampling.byte_law(below[:, level.start - 1 :], law)
        tree = trees.prune(tree, self.draft_length)
        draft = trees.draft(tree, passes=_passes(text, self.depth))
        return draft, caches

    def _slots(self, trunk, window, length):
        """Room for the window that is taken in and what is drafted behind it."""
        ahead = window + max(self.draft_length, self.beam * (self.depth or 0)) + 1
        return kv_cache.ring_slots(window=trunk.window, width=ahead, capacity=length + ahead)


def _fused(target):
    heads = target.module.config.heads
    return heads and heads.draft_layer


def _passes(text, count):
    none = no_passes(text.ids.shape[0])
    return none._replace(draft_model=none.draft_model + count)


def _empty(trunk, batch, slots, dtype):
    return kv_cache.zeros(
        layers=1,
        batch=batch,
        kv_heads=trunk.kv_heads,
        slots=slots,
        head_dim=trunk.head_dim,
        dtype=dtype,
    )
