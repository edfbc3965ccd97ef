"""Sampling of drafted bytes, and their conversion to a `Draft`."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.decode import sampling
from bytelax.decode.draft import Draft, DraftPasses
from bytelax.decode.sampling import Sampling


class Drawn(NamedTuple):
    """Sampled ids, and the distributions that they come from."""

    ids: Int[Array, "B N"]
    log_probs: Float[Array, "B N V"]


def draw(logits: Float[Array, "B N V"], how: Sampling, uniforms: Float[Array, "B N"]) -> Drawn:
    """Samples one id per position from the drafter's logits, with the request's sampling.

    Args:
      logits: the drafter's logits.
      how: `DraftInput.sampling`.
      uniforms: numbers from `DraftInput.uniforms`, each to be used only once.
    """
    log_probs = sampling.process_logits(logits, how)
    return Drawn(sampling.draw(log_probs, how, uniforms), log_probs)


def in_a_row(*parts: Drawn) -> Drawn:
    """Concatenates sampled bytes along the position axis."""
    return Drawn(*(jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def scan(step: Callable, carry: Any, xs: Any) -> tuple[Any, Any]:
    """Calls `jax.lax.scan`; there may be no steps under `jax.disable_jit` either."""
    steps = len(jax.tree.leaves(xs)[0])
    with contextlib.nullcontext() if steps else jax.disable_jit(False):
        return jax.lax.scan(step, carry, xs)


def scanned(drawn: Drawn) -> Drawn:
    """Reshapes what a scan has stacked from [T, B, N] to [B, T * N]."""

    def flat(x):
        x = jnp.moveaxis(x, 0, 1)
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:])

    return Drawn(*map(flat, drawn))


def draft_of(
    drawn: Drawn,
    *,
    length: Int[Array, " B"] | None = None,
    step: Int[Array, " N"] | None = None,
    passes: DraftPasses | None = None,
    state: Any = None,
) -> Draft:
    """Packs sampled bytes into a `Draft`.

    Args:
      drawn: the bytes.
      length: number of bytes proposed in each row; None proposes all of them.
      step: as in `Draft`, but the same for each row.
      passes: as in `Draft`.
      state: as in `Draft`.
    """
    batch, places = drawn.ids.shape
    return Draft(
        ids=drawn.ids,
        length=jnp.full(batch, places) if length is None else length,
        log_probs=drawn.log_probs,
        step=None if step is None else jnp.broadcast_to(step, (batch, places)),
        passes=passes,
        state=state,
    )
