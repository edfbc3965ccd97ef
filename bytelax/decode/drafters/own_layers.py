"""A byte transformer drafts with some of its own blocks, on the caches of all of them."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.byte_lm_target import ByteLMState, ByteLMTarget, FirstLayers
from bytelax.decode.drafters.base import Draft, no_passes
from bytelax.decode.sampling import Sampling
from bytelax.models.layers import Part


class Drawn(NamedTuple):
    """Drafted ids, the laws they were drawn from, and how likely the drafter thought them."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]
    confidence: Float[Array, "B N"]


# From the hidden state of the newest byte, [B, 1, D], and N uniforms a row to N drawn ids.
Draw = Callable[[Float[Array, "B 1 D"], Float[Array, "B N"]], Drawn]


def draw(logits: Float[Array, "B N V"], law: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    log_probs = sampling.process_logits(logits, law)
    ids = sampling.draw(log_probs, law, uniforms)
    return Drawn(ids, log_probs, sampling.probability(logits, law, ids))


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

    def joined(first, rest):
        rest = jnp.moveaxis(rest, 0, 1)
        rest = rest.reshape(batch, rest.shape[1] * rest.shape[2], *rest.shape[3:])
        return jnp.concatenate([first, rest], axis=1)

    drawn = jax.tree.map(lambda first, most: joined(first, most)[:, :width], first, most)
    computed = None
    if hand_over:
        computed = FirstLayers(joined(root, hidden), caches, part.last)
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, width),
        log_probs=drawn.log_probs,
        deterministic=jnp.full(batch, law.greedy),
        step=jnp.broadcast_to(1 + jnp.arange(width) // stride, (batch, width)),
        passes=no_passes(batch)._replace(decoder=jnp.full(batch, 1 + rest.shape[0])),
        confidence=drawn.confidence,
        computed=computed,
    )


def _of_part(caches, part):
    """The caches that the blocks write; the others are not carried along."""
    last = len(caches) if part.last is None else part.last
    return tuple(
        None if index in part.no_attention else cache for index, cache in enumerate(caches[:last])
    )
