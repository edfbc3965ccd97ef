"""What early exit and layer skipping have in common: some blocks of a model run ahead."""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.draft import Draft, Drawn, draft_of, in_a_row, no_passes, scan, scanned
from bytelax.decode.drafter import DraftInput
from bytelax.models.transformer import LayerRange
from bytelax.targets.byte_lm import ByteLMTarget, FirstLayers

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
    after = _with_caches(state, caches)
    if hand_over:
        ahead_of_root = jnp.moveaxis(hidden, 0, 1).reshape(batch, length, -1)
        window = jnp.concatenate([root, ahead_of_root], axis=1)
        assert layers.last is not None  # only the first blocks hand over
        after = dataclasses.replace(state, computed=FirstLayers(window, caches, layers.last))
    return draft_of(
        drawn,
        passes=no_passes(batch)._replace(decoder=jnp.full(batch, 1 + rest.shape[0])),
        state=after,
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
