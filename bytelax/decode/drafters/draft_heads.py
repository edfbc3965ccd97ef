"""Trained layers that draft from hidden states of the target: EAGLE and DFlash."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from bytelax import vocab
from bytelax.decode import sampling, trees
from bytelax.decode.draft import Draft, Drawn, draft_of, draw, no_passes, scanned
from bytelax.decode.drafters import expect, expect_heads, kept_state
from bytelax.decode.sampling import Sampling
from bytelax.decode.target import Branching, agreed
from bytelax.decode.targets import ModuleTarget
from bytelax.decode.trees import Tree
from bytelax.models import kv_cache
from bytelax.models.draft_heads import GREEDY, SAMPLED
from bytelax.models.kv_cache import Caches
from bytelax.models.layers import with_specials
from bytelax.models.pytree import pytree


class _FromStates:
    """Base of drafters with trained layers that read fused states of the target.

    Attributes:
      head_of_target: name of the layers among the target's heads, whose weights a pass reads.
      min_survival: end a draft before the first byte that is kept with less than this probability,
        as predicted before the byte is drawn; see `goes_on`. None drafts K bytes.
    """

    head_of_target: ClassVar[str]
    min_survival: float | None

    def __post_init__(self):
        if self.min_survival is not None and not 0 <= self.min_survival <= 1:
            raise ValueError(f"min_survival is a probability, 0..1, got {self.min_survival}")

    def fit(self, target):
        expect(target, ModuleTarget, self)
        config, name = target.module.config, self.head_of_target
        expect_heads(config.heads and getattr(config.heads, name), name.replace("_", " "))
        reach = config.heads.draft.stack(config.trunk, layers=1).window
        return target.keeping(*self._depths(config), reach=reach)

    def _depths(self, config) -> tuple[int, ...]:
        return config.heads.fused(getattr(config.heads, self.head_of_target))

    def _layers(self, model) -> Any:
        return getattr(model.heads, self.head_of_target)

    def _latest(self, inputs, trunk) -> tuple[Float[Array, "B R D"], Int[Array, "B R"]]:
        """Features of the bytes before the pending one that are in reach, and their positions."""
        newest, length = inputs.text.length - 2, inputs.text.ids.shape[1]
        count = min(trunk.window or length, length)
        places = jnp.maximum(newest[:, None] - jnp.arange(count - 1, -1, -1), -1)
        states = (kept_state(inputs, depth, places) for depth in self._depths(inputs.model.config))
        return self._layers(inputs.model).fuse(*states), places

    def _new(self, inputs, trial) -> Float[Array, "B W D"]:
        """Features of the bytes of a window."""
        keep = inputs.target.keep
        states = (trial.hidden[keep.index(depth)] for depth in self._depths(inputs.model.config))
        return self._layers(inputs.model).fuse(*states)


def goes_on(
    logits: Float[Array, "B V"],
    how: Sampling,
    before: Float[Array, " B"],
    *,
    confidence: Float[Array, "B 2"] | None,
    least: float | None,
) -> tuple[Float[Array, " B"], Bool[Array, " B"]]:
    """Predicts the probability that a byte will be kept, and says whether it is to be drafted.

    This is before the byte is drawn, which makes it lossless to end a draft there: whether position
    j is drafted depends on the text and on the ids drawn before j, and never on id j. Then id j,
    where it is shown, is a sample from the distribution that acceptance divides by. To drop a byte
    for its own probability, which is known only after the draw, would show one at j only when a
    likely one was drawn.

    Args:
      logits: the drafter's logits of the byte.
      how: how the byte is sampled.
      before: probability that all bytes of the draft before it are kept.
      confidence: output of a trained `Confidence` head; its prediction for sampling is of
        temperature 1. None takes the drafter's largest probability at temperature 1, which is the
        probability of agreement under greedy sampling if the drafter is calibrated, and too low
        otherwise.
      least: smallest probability of being kept with which a byte is drafted; None drafts all.
    """
    if confidence is None:
        accepted = jnp.exp(sampling.byte_log_probs(logits[:, None], how)[:, 0].max(-1))
    else:
        of_kind = jnp.where(how.cold, confidence[:, GREEDY], confidence[:, SAMPLED])
        accepted = jax.nn.sigmoid(of_kind)
    kept = before * accepted
    return kept, jnp.ones_like(kept, bool) if least is None else kept >= least


def _no_keys(trunk, text, *, ahead: int, dtype) -> Caches:
    """Empty caches for a text and `ahead` bytes behind it."""
    batch, length = text.ids.shape
    slots = kv_cache.ring_slots(window=trunk.window, width=ahead, capacity=length + ahead)
    return kv_cache.zeros(trunk, batch=batch, slots=slots, dtype=dtype)


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
class DraftLayer(_FromStates):
    """Drafts byte by byte with one trained block, which reads its own output for the byte before.

    EAGLE-3 (Li et al., arXiv 2503.01840). If another drafter's bytes were verified in a round, the
    cache misses them: later drafts get worse, but the output stays the same.

    Attributes:
      draft_length: K, number of bytes drafted.
      beam: 1 drafts a chain. A larger value drafts a tree: every node has `beam` children, each
        level expands the `beam` nodes of highest path probability (EAGLE-2, arXiv 2406.16858), and
        the K most probable nodes of the whole tree are verified.
      depth: number of levels of the tree.
      min_survival: a draft ends before a byte that is less likely to be kept. The layer then does
        not run for the bytes that no row drafts. None drafts K bytes.
    """

    draft_length: int
    beam: int = 1
    depth: int | None = None
    min_survival: float | None = None

    head_of_target = "draft_layer"

    def __post_init__(self):
        super().__post_init__()
        if self.beam > 1 and not self.depth:
            raise ValueError("a tree needs a depth")
        if self.beam > 1 and self.min_survival is not None:
            raise ValueError("min_survival ends chains, not trees: beam must be 1")

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
        layer, window = model.heads.draft_layer, inputs.target.window
        features, places = self._latest(inputs, layer.trunk)
        following = jnp.take_along_axis(text.ids, places + 1, axis=1)
        # Of the last window and the next draft.
        ahead = window + max(self.draft_length, self.beam * (self.depth or 0)) + 1
        empty = _no_keys(layer.trunk, text, ahead=ahead, dtype=features.dtype)
        span = kv_cache.causal_span(places, window=layer.trunk.window)
        _, _, caches = layer(features, model.embed(following), empty, span=span)
        features = jnp.pad(features[:, -1:], ((0, 0), (0, window - 1), (0, 0)))
        return DraftLayerState(caches, features, jnp.maximum(text.length - 2, 0))

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        layer = model.heads.draft_layer
        logits, feature, caches = self._catch_up(model, draft_state, text)
        if self.beam > 1:
            draft, caches = self._tree(inputs, logits, feature, caches)
            return draft, dataclasses.replace(draft_state, caches=caches)

        batch, last = len(text.length), self.draft_length - 1
        uniforms = inputs.uniforms(self.draft_length)

        def judged(logits, feature, before, kept):
            """The probability that the byte of these logits is kept, and whether to draft it."""
            sure = layer.accepted(feature, before)[:, 0] if layer.has_confidence else None
            kept, likely = goes_on(
                logits[:, 0], inputs.sampling, kept, confidence=sure, least=self.min_survival
            )
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
            kept, likely = judged(logits, feature, here.ids, kept)
            drawn = _put(drawn, here, index)
            return index + 1, logits, feature, caches, drawn, kept, alive & likely, length

        kept, alive = judged(logits, feature, text.pending, jnp.ones(batch))
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
        kept = (count > 0)[:, None, None]
        features = jnp.where(kept, self._new(inputs, trial), draft_state.features)
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


@dataclasses.dataclass(frozen=True)
class DraftBlock(_FromStates):
    """Predicts K bytes in one pass, then samples them from left to right.

    DFlash (arXiv 2602.06036) and, with the table of the byte before, DSpark (arXiv 2607.05147). The
    pass predicts the bytes independently. The table then adds to the logits of each byte a row that
    depends on the byte sampled before it. The reported distribution is the one sampled from. The
    state is the keys and values of the bytes that the target has taken in, for each layer.

    Attributes:
      draft_length: K, the number of bytes drafted.
      min_survival: a draft ends before a byte that is less likely to be kept. None drafts K bytes.
    """

    draft_length: int
    min_survival: float | None = None

    head_of_target = "draft_block"

    def fit(self, target):
        target = super().fit(target)
        trained = target.module.config.heads.draft.block_size
        if not 1 <= self.draft_length <= trained:
            raise ValueError(
                f"the draft block was trained on blocks of up to {trained} bytes, got "
                f"{self.draft_length}"
            )
        return target

    def init(self, inputs):
        model = inputs.model
        block = model.heads.draft_block
        features, places = self._latest(inputs, block.trunk)
        # Windows and blocks are written after the text, also in rows that are done.
        ahead = max(inputs.target.window, model.config.heads.draft.block_size + 1)
        empty = _no_keys(block.trunk, inputs.text, ahead=ahead, dtype=features.dtype)
        return block.remember(features, empty, positions=places)

    def propose(self, inputs, draft_state):
        model, text = inputs.model, inputs.text
        block = model.heads.draft_block
        found, caches = block(
            model.embed(text.pending[:, 0]),
            draft_state,
            position=text.length - 1,
            size=model.config.heads.draft.block_size,  # as trained: a query sees all others
        )

        def step(carry, place):
            before, kept, alive = carry
            logits, state, uniform = place
            logits = with_specials(logits + block.table_row(before))
            sure = block.accepted(state, before) if block.has_confidence else None
            kept, likely = goes_on(
                logits, inputs.sampling, kept, confidence=sure, least=self.min_survival
            )
            alive &= likely
            drawn = draw(logits[:, None], inputs.sampling, uniform[:, None])
            return (drawn.ids[:, 0], kept, alive), (drawn, alive)

        batch, uniforms = len(text.length), inputs.uniforms(self.draft_length)
        of_bytes = [x[:, : self.draft_length].swapaxes(0, 1) for x in found]
        first = text.pending[:, 0], jnp.ones(batch), jnp.ones(batch, bool)
        _, (drawn, alive) = jax.lax.scan(step, first, (*of_bytes, uniforms.T))
        none = no_passes(batch)
        draft = draft_of(
            scanned(drawn),
            length=alive.sum(0),
            step=jnp.ones(self.draft_length, jnp.int32),
            passes=none._replace(draft_model=none.draft_model + 1),
        )
        return draft, caches

    def commit(self, inputs, draft_state, trial, count):
        # Rejected bytes lie after the text, where the next block and window overwrite them.
        features = self._new(inputs, trial)
        places = trial.state.length[:, None] + jnp.arange(features.shape[1])
        return inputs.model.heads.draft_block.remember(features, draft_state, positions=places)
