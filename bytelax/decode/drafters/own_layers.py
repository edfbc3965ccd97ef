"""A byte transformer drafts with some of its own blocks, on the caches of all of them."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode.drafters.base import Draft, no_passes
from bytelax.decode.drafters.drawn import Drawn, draft_of, in_a_row, scanned
from bytelax.decode.sampling import Sampling
from bytelax.decode.targets.byte_lm import ByteLMState, ByteLMTarget, FirstLayers
from bytelax.models.transformer import Part

# From the hidden state of the newest byte, [B, 1, D], and N uniforms a row to N drawn ids.
Draw = Callable[[Float[Array, "B 1 D"], Float[Array, "B N"]], Drawn]


def propose(
    model,
    target: ByteLMTarget,
    state: ByteLMState,
    pending: Int[Array, "B 1"],
    draw: Draw,
    law: Sampling,
    *,
    part: Part,
    uniforms: Float[Array, "B K"],
    stride: int = 1,
    hand_over: bool = False,
) -> Draft:
    """Runs ahead of the text, `stride` drawn bytes a pass.

    Args:
      model: the target's module, bound.
      target: the target.
      state: its state, which is left as it is.
      pending: the pending byte.
      draw: what the drafter makes of a hidden state.
      law: that of the request.
      part: the blocks that run.
      uniforms: one a drafted byte; K is a multiple of `stride`.
      stride: bytes drawn from one hidden state.
      hand_over: one more pass takes in the last bytes, and `Draft.computed` holds the first blocks
        of the whole window.
    """
    batch, width = uniforms.shape
    caches = _of_part(state.caches, part)

    def run(ids, length, caches):
        span, _ = target.span(dataclasses.replace(state, length=length), ids)
        return model.trunk(model.embed(ids), caches, span=span, part=part)

    def ahead(carry, uniforms):
        ids, length, caches = carry
        hidden, caches = run(ids, length, caches)
        drawn = draw(hidden[:, -1:], uniforms)
        return (drawn.ids, length + stride, caches), (drawn, hidden)

    by_pass = uniforms.reshape(batch, -1, stride).swapaxes(0, 1)
    root, caches = run(pending, state.length, caches)
    first = draw(root, by_pass[0])
    rest = by_pass[1:]
    if hand_over:  # what the last pass draws is not looked at
        rest = jnp.concatenate([rest, by_pass[:1]])
    (_, _, caches), (most, hidden) = jax.lax.scan(
        ahead, (first.ids, state.length + 1, caches), rest
    )

    drawn = Drawn(*(x[:, :width] for x in in_a_row(first, scanned(most))))
    computed = None
    if hand_over:
        ahead_of_root = jnp.moveaxis(hidden, 0, 1).reshape(batch, width, -1)
        window = jnp.concatenate([root, ahead_of_root], axis=1)
        computed = FirstLayers(window, caches, part.last)
    return draft_of(
        drawn,
        law,
        step=1 + jnp.arange(width) // stride,
        passes=no_passes(batch)._replace(decoder=jnp.full(batch, 1 + rest.shape[0])),
        computed=computed,
    )


def _of_part(caches, part):
    """The caches that the blocks write; the others are not carried along."""
    last = len(caches) if part.last is None else part.last
    return tuple(
        None if index in part.no_attention else cache for index, cache in enumerate(caches[:last])
    )
