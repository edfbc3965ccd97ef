"""A byte transformer drafts with some of its own blocks: early exit, and skipped layers."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.draft import Draft, Drawn, draft_of, draw, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafters import DraftInput, Stateless, expect, expect_heads
from bytelax.decode.targets.byte_lm import ByteLMTarget, FirstLayers
from bytelax.models.configs import HeadsConfig
from bytelax.models.layers import only_bytes
from bytelax.models.transformer import LayerRange

# Maps the hidden state of the newest byte, [B, 1, D], and N uniforms per row to N sampled ids.
Draw = Callable[[Float[Array, "B 1 D"], Float[Array, "B N"]], Drawn]


def draft_ahead(
    inputs: DraftInput,
    draw: Draw,
    *,
    layers: LayerRange,
    length: int,
    stride: int = 1,
    hand_over: bool = False,
) -> Draft:
    """Drafts autoregressively with a subset of the blocks, `stride` bytes per pass.

    Args:
      inputs: as in `Drafter.propose`.
      draw: samples the drafted bytes from a hidden state.
      layers: the blocks that run.
      length: K, number of bytes drafted; a multiple of `stride`.
      stride: number of bytes sampled from one hidden state.
      hand_over: whether to make one more pass, over the last bytes, so that the state of the draft
        holds the first blocks of the whole window.
    """
    target = inputs.target
    assert isinstance(target, ByteLMTarget)
    model, state, uniforms = inputs.model, inputs.state, inputs.uniforms(length)
    batch = uniforms.shape[0]
    caches = _of_range(state.caches, layers)

    def run(ids, position, caches):
        span, _ = target.span(dataclasses.replace(state, length=position), ids)
        return model.trunk(model.embed(ids), caches, span=span, layers=layers)

    def ahead(carry, uniforms):
        ids, position, caches = carry
        hidden, caches = run(ids, position, caches)
        drawn = draw(hidden[:, -1:], uniforms)
        return (drawn.ids, position + stride, caches), (drawn, hidden)

    by_pass = uniforms.reshape(batch, -1, stride).swapaxes(0, 1)
    root, caches = run(inputs.text.pending, state.length, caches)
    first = draw(root, by_pass[0])
    rest = by_pass[1:]
    if hand_over:  # the bytes drawn by this last pass are not used
        rest = jnp.concatenate([rest, by_pass[:1]])
    (_, _, caches), (most, hidden) = scan(ahead, (first.ids, state.length + 1, caches), rest)

    drawn = Drawn(*(x[:, :length] for x in in_a_row(first, scanned(most))))
    behind = _with_caches(state, caches)
    if hand_over:
        ahead_of_root = jnp.moveaxis(hidden, 0, 1).reshape(batch, length, -1)
        window = jnp.concatenate([root, ahead_of_root], axis=1)
        assert layers.last is not None  # handing over is for the first blocks
        behind = dataclasses.replace(state, computed=FirstLayers(window, caches, layers.last))
    return draft_of(
        drawn,
        step=1 + jnp.arange(length) // stride,
        passes=no_passes(batch)._replace(decoder=jnp.full(batch, 1 + rest.shape[0])),
        state=behind,
    )


def _with_caches(state, caches):
    """Returns the state with the caches that drafting has written to, beyond the state's length."""
    own = zip(state.caches, caches, strict=False)
    run = tuple(old if new is None else new for old, new in own)
    return dataclasses.replace(state, caches=run + state.caches[len(run) :])


def _of_range(caches, layers):
    """Returns the caches of the blocks that run, with None where attention is skipped."""
    last = len(caches) if layers.last is None else layers.last
    return tuple(
        None if index in layers.no_attention else cache for index, cache in enumerate(caches[:last])
    )


@dataclasses.dataclass(frozen=True)
class EarlyExit(Stateless):
    """Drafts byte by byte with the first `layer` blocks of the model (early exit).

    LayerSkip (Elhoushi et al., arXiv 2404.16710, section 4.3). With `two_byte`, a two-byte-ahead
    head on the same hidden state drafts one more byte, so that every pass drafts two.

    Attributes:
      draft_length: K, number of bytes drafted; must be even with `two_byte`.
      layer: number of blocks that draft.
      head: whether the exit head of that depth reads the hidden state, in place of the model's own
        output layer.
      two_byte: whether the two-byte-ahead head of that depth drafts a second byte from each state.
      hand_over: whether verification continues after block `layer`, from the states that drafting
        computed; this needs a window of K + 1. Their last bits may differ from those of a pass over
        all K + 1 bytes.
    """

    draft_length: int
    layer: int
    head: bool = False
    two_byte: bool = False
    hand_over: bool = True

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        layers = target.module.config.trunk.layers
        if not 1 <= self.layer < layers:
            raise ValueError(
                f"the model has {layers} layers: an early exit lies behind one of the first "
                f"{layers - 1}, got {self.layer}"
            )
        heads = target.module.config.heads or HeadsConfig()
        behind = f"behind layer {self.layer}"
        if self.head:
            expect_heads(self.layer in heads.exits, f"exit head {behind}")
        if self.two_byte:
            expect_heads(self.layer in heads.two_byte, f"two-byte head {behind}")
        if self.two_byte and self.draft_length % 2:
            raise ValueError(
                f"a two-byte head drafts pairs: an even length, got {self.draft_length}"
            )
        return target

    def propose(self, inputs, draft_state):
        model = inputs.model

        def drawn(hidden, uniforms):
            logits = model.heads.exit(self.layer, hidden) if self.head else model.logits(hidden)
            first = draw(logits, inputs.sampling, uniforms[:, :1])
            if not self.two_byte:
                return first
            after = model.heads.two_byte(self.layer, hidden, model.embed(first.ids))
            second = draw(only_bytes(model.logits(after)), inputs.sampling, uniforms[:, 1:])
            return in_a_row(first, second)

        draft = draft_ahead(
            inputs,
            drawn,
            layers=LayerRange(last=self.layer),
            length=self.draft_length,
            stride=1 + self.two_byte,
            hand_over=self.hand_over and inputs.target.window == self.draft_length + 1,
        )
        return draft, draft_state


@dataclasses.dataclass(frozen=True)
class LayerSkip(Stateless):
    """Drafts byte by byte with the attention and the SwiGLU of chosen blocks skipped.

    Draft & Verify (Zhang et al., arXiv 2309.08168, section 3.1). Needs no training.

    Attributes:
      draft_length: K, number of bytes drafted.
      no_attention: blocks whose attention is skipped.
      no_mlp: blocks whose SwiGLU is skipped.
    """

    draft_length: int
    no_attention: tuple[int, ...]
    no_mlp: tuple[int, ...]

    def fit(self, target):
        expect(target, ByteLMTarget, self)
        layers = target.module.config.trunk.layers
        for skipped in (self.no_attention, self.no_mlp):
            if not set(skipped) <= set(range(layers)):
                raise ValueError(f"blocks are 0..{layers - 1}; cannot skip {sorted(skipped)}")
        return target

    def propose(self, inputs, draft_state):
        model = inputs.model
        draft = draft_ahead(
            inputs,
            lambda hidden, uniforms: draw(model.logits(hidden), inputs.sampling, uniforms),
            layers=LayerRange(no_attention=self.no_attention, no_mlp=self.no_mlp),
            length=self.draft_length,
        )
        return draft, draft_state
