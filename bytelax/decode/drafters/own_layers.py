"""Self-drafting of a byte transformer with some of its blocks, on its own caches."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode.draft import Draft, no_passes
from bytelax.decode.drafters.base import DraftInput
from bytelax.decode.drafters.drawn import Drawn, draft_of, in_a_row, scanned
from bytelax.decode.targets.byte_lm import FirstLayers
from bytelax.models.transformer import Part

# From the hidden state of the newest byte, [B, 1, D], and N uniforms a row to N drawn ids.
Draw = Callable[[Float[Array, "B 1 D"], Float[Array, "B N"]], Drawn]


def propose(
    inputs: DraftInput,
    draw: Draw,
    *,
    part: Part,
    length: int,
    stride: int = 1,
    hand_over: bool = False,
) -> Draft:
    """Drafts autoregressively with a part of the blocks, `stride` bytes a pass.

    Args:
      inputs: as in `Drafter.propose`.
      draw: what the drafter makes of a hidden state.
      part: the blocks that run.
      length: K, bytes drafted; a multiple of `stride`.
      stride: bytes drawn from one hidden state.
      hand_over: make one more pass, for the last bytes, so that `Draft.computed` holds the first
        blocks of the whole window.
    """
    model, state, uniforms = inputs.model, inputs.state, inputs.uniforms(length)
    batch = uniforms.shape[0]
    caches = _of_part(state.caches, part)

    def run(ids, position, caches):
        span, _ = inputs.target.span(dataclasses.replace(state, length=position), ids)
        return model.trunk(model.embed(ids), caches, span=span, part=part)

    def ahead(carry, uniforms):
        ids, position, caches = carry
        hidden, caches = run(ids, position, caches)
        drawn = draw(hidden[:, -1:], uniforms)
        return (drawn.ids, position + stride, caches), (drawn, hidden)

    by_pass = uniforms.reshape(batch, -1, stride).swapaxes(0, 1)
    root, caches = run(inputs.text.pending, state.length, caches)
    first = draw(root, by_pass[0])
    rest = by_pass[1:]
    if hand_over:  # what the last pass draws is not looked at
        rest = jnp.concatenate([rest, by_pass[:1]])
    (_, _, caches), (most, hidden) = jax.lax.scan(
        ahead, (first.ids, state.length + 1, caches), rest
    )

    drawn = Drawn(*(x[:, :length] for x in in_a_row(first, scanned(most))))
    computed = None
    if hand_over:
        ahead_of_root = jnp.moveaxis(hidden, 0, 1).reshape(batch, length, -1)
        window = jnp.concatenate([root, ahead_of_root], axis=1)
        computed = FirstLayers(window, caches, part.last)
    return draft_of(
        drawn,
        step=1 + jnp.arange(length) // stride,
        passes=no_passes(batch)._replace(decoder=jnp.full(batch, 1 + rest.shape[0])),
        computed=computed,
        state=None if hand_over else _with_caches(state, caches),
    )


def _with_caches(state, caches):
    """The state with the caches that drafting has written to, beyond its length."""
    own = zip(state.caches, caches, strict=False)
    run = tuple(old if new is None else new for old, new in own)
    return dataclasses.replace(state, caches=run + state.caches[len(run) :])


def _of_part(caches, part):
    """The caches of the blocks that run."""
    last = len(caches) if part.last is None else part.last
    return tuple(
        None if index in part.no_attention else cache for index, cache in enumerate(caches[:last])
    )
