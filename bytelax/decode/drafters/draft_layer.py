"""EAGLE: one trained block drafts from hidden features of the whole model."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.decode import sampling, trees
from bytelax.decode.draft import Draft, no_passes
from bytelax.decode.drafters import draft_sampling, expect, kept_state
from bytelax.decode.drafters.draft_sampling import Drawn, draft_of, draw
from bytelax.decode.target import Branching, agreed
from bytelax.decode.targets import ModuleTarget
from bytelax.decode.trees import Tree
from bytelax.models import kv_cache
from bytelax.models.kv_cache import Caches
from bytelax.models.pytree import pytree


@pytree
class DraftLayerState:
    """The block's cache before position `start`, and the target's features from there on.

    For byte t, the block's input is the feature of byte t paired with the embedding of byte t + 1.
    The features of the last window therefore wait until the bytes after it are known, which is at
    the next draft.
    """

    caches: Caches
    features: Float[Array, "B W D"]
    start: Int[Array, " B"]


@dataclasses.dataclass(frozen=True)
class DraftLayer:
    """Drafts byte by byte with one trained block, which reads its own output for the byte before.

    EAGLE-3 (Li et al., arXiv 2503.01840). If another drafter's bytes were verified in a round, the
    cache misses them: later drafts get worse, but the output stays the same.

    Attributes:
      draft_length: K, number of bytes drafted.
      beam: 1 drafts a chain. A larger value drafts a tree: every node has `beam` children, each
        level expands the `beam` nodes of highest path probability (EAGLE-2, arXiv 2406.16858), and
        the K most probable nodes of the whole tree are verified.
      depth: number of levels of the tree.
      min_survival: end a draft before the first byte that is kept with less than this probability,
        as predicted before the byte is drawn; see `survival`. The layer then does not run for the
        bytes that no row drafts. None drafts K bytes.
    """

    draft_length: int
    beam: int = 1
    depth: int | None = None
    min_survival: float | None = None

    head_of_target = "draft_layer"  # whose weights a pass reads

    def __post_init__(self):
        if self.beam > 1 and not self.depth:
            raise ValueError("a tree needs a depth")
        if self.beam > 1 and self.min_survival is not None:
            raise ValueError("min_survival ends chains, not trees: beam must be 1")
        draft_sampling.check_survival(self.min_survival)

    @property
    def judged_by(self) -> Tree | None:
        return Tree(self.depth) if self.beam > 1 and self.depth else None

    def fit(self, target):
        expect(target, ModuleTarget, self)
        if self.beam > 1:
            expect(target, Branching, self)
        config = target.module.config
        if not (config.heads and config.heads.draft_layer):
            raise ValueError("the model has no draft layer; `bytelax train heads` trains one")
        reach = config.heads.draft.stack(config.trunk, layers=1).window
        return target.keeping(*_fused(config), reach=reach)

    def init(self, inputs):
        model, text = inputs.model, inputs.text
        layer, window = model.heads.draft_layer, inputs.target.window
        length, newest = text.ids.shape[1], text.length - 2
        places = latest(newest, reach=layer.trunk.window, length=length)
        fused = (kept_state(inputs, depth, places) for depth in _fused(model.config))
        features = layer.fuse(*fused)
        following = jnp.take_along_axis(text.ids, places + 1, axis=1)
        slots = self._slots(layer.trunk, window, length)
        empty = kv_cache.zeros(
            layer.trunk, batch=text.ids.shape[0], slots=slots, dtype=features.dtype
        )
        span = kv_cache.causal_span(places, window=layer.trunk.window)
        _, _, caches = layer(features, model.embed(following), empty, span=span)
        features = jnp.pad(features[:, -1:], ((0, 0), (0, window - 1), (0, 0)))
        return DraftLayerState(caches, features, jnp.maximum(newest, 0))

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        layer = model.heads.draft_layer
        logits, feature, caches = self._catch_up(model, draft_state, text)
        if self.beam > 1:
            draft, caches = self._tree(inputs, logits, feature, caches)
            return draft, dataclasses.replace(draft_state, caches=caches)

        batch, last = len(text.length), self.draft_length - 1
        uniforms = inputs.uniforms(self.draft_length)

        def goes_on(logits, feature, before, kept):
            """The probability that the byte of these logits is kept, and whether to draft it."""
            sure = layer.accepted(feature, before)[:, 0] if layer.has_confidence else None
            accepted = draft_sampling.expected_acceptance(
                logits[:, 0], inputs.sampling, confidence=sure
            )
            kept, likely = draft_sampling.survives(kept, accepted, self.min_survival)
            if self.min_survival is not None:  # then it ends the loop
                likely = agreed(inputs.target, likely.astype(jnp.int32)) > 0
            return kept, likely

        def step(carry):
            index, logits, feature, caches, drawn, kept, alive, length = carry
            here = draw(
                logits, inputs.sampling, jax.lax.dynamic_slice_in_dim(uniforms, index, 1, 1)
            )
            span = kv_cache.causal_span(
                (text.length - 1 + index)[:, None], window=layer.trunk.window
            )
            logits, feature, caches = layer(feature, model.embed(here.ids), caches, span=span)
            length = length + alive
            kept, likely = goes_on(logits, feature, here.ids, kept)
            drawn = _put(drawn, here, index)
            return index + 1, logits, feature, caches, drawn, kept, alive & likely, length

        kept, alive = goes_on(logits, feature, text.pending, jnp.ones(batch))
        drawn = _nothing(batch, self.draft_length, logits.shape[-1])
        carry = 0, logits, feature, caches, drawn, kept, alive, jnp.zeros(batch, jnp.int32)
        _, logits, _, caches, drawn, _, alive, length = jax.lax.while_loop(
            lambda carry: (carry[0] < last) & carry[6].any(), step, carry
        )
        # If the loop ended early, no row is alive, and this draw is discarded.
        drawn = _put(drawn, draw(logits, inputs.sampling, uniforms[:, last:]), last)
        length = length + alive
        # One more than the bytes drafted, which found the next byte too unlikely.
        made = jnp.minimum(length + 1, self.draft_length)
        draft = draft_of(
            drawn,
            length=length,
            step=1 + jnp.arange(self.draft_length),
            passes=no_passes(batch)._replace(draft_model=made),
        )
        return draft, dataclasses.replace(draft_state, caches=caches)

    def commit(self, inputs, draft_state, trial, count):
        model, target = inputs.model, inputs.target
        hidden = (trial.hidden[target.keep.index(d)] for d in _fused(model.config))
        kept = (count > 0)[:, None, None]
        features = jnp.where(kept, model.heads.draft_layer.fuse(*hidden), draft_state.features)
        return dataclasses.replace(
            draft_state,
            features=features,
            start=jnp.where(count > 0, trial.state.length, draft_state.start),
        )

    def _catch_up(self, model, draft_state, text):
        """Processes the last window; returns the pending byte's logits, its feature, the caches."""
        place = draft_state.start[:, None] + jnp.arange(draft_state.features.shape[1])
        following = jnp.take_along_axis(text.ids, place + 1, axis=1, mode="clip")
        following = jnp.where(place + 1 < text.length[:, None], following, vocab.BOE)
        layer = model.heads.draft_layer
        span = kv_cache.causal_span(place, window=layer.trunk.window)
        logits, features, caches = layer(
            draft_state.features, model.embed(following), draft_state.caches, span=span
        )
        newest = (text.length - 2 - draft_state.start)[:, None, None]
        newest = jnp.clip(newest, 0, place.shape[1] - 1)
        logits = jnp.take_along_axis(logits, newest, axis=1)
        return logits, jnp.take_along_axis(features, newest, axis=1), caches

    def _tree(self, inputs, logits, feature, caches) -> tuple[Draft, Caches]:
        """Grows the tree level by level. Each pass runs all nodes again, as one block is cheap."""
        model, text = inputs.model, inputs.text
        layer = model.heads.draft_layer
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
            below, features, caches = layer(read, model.embed(tree.ids[:, 1:]), caches, span=span)
            made = jnp.concatenate([feature, features], axis=1)
            log_probs = sampling.byte_log_probs(below[:, level.start - 1 :], inputs.sampling)
        tree = trees.prune(tree, self.draft_length)
        passes = no_passes(len(text.length))
        passes = passes._replace(draft_model=passes.draft_model + self.depth)
        return trees.draft(tree, passes=passes), caches

    def _slots(self, trunk, window, length):
        """Returns the number of cache slots for the text, the last window and the next draft."""
        ahead = window + max(self.draft_length, self.beam * (self.depth or 0)) + 1
        return kv_cache.ring_slots(window=trunk.window, width=ahead, capacity=length + ahead)


def _nothing(batch: int, places: int, vocabulary: int) -> Drawn:
    """Room for `places` drawn bytes."""
    return Drawn(
        jnp.zeros((batch, places), jnp.int32),
        jnp.zeros((batch, places, vocabulary), jnp.float32),
    )


def _put(drawn: Drawn, byte: Drawn, index) -> Drawn:
    """Returns the drawn bytes with another one at `index`."""
    put = jax.lax.dynamic_update_slice_in_dim
    return jax.tree.map(lambda whole, one: put(whole, one, index, axis=1), drawn, byte)


def latest(newest: Int[Array, " B"], *, reach: int | None, length: int) -> Int[Array, "B R"]:
    """Positions up to the newest, as many as `reach` or as the text has; -1 before its begin."""
    count = min(reach or length, length)
    return jnp.maximum(newest[:, None] - jnp.arange(count - 1, -1, -1), -1)


def _fused(config):
    return config.heads.fused(config.heads.draft_layer)
