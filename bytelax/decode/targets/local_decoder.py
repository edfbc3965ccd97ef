"""The local decoder of a BLT by itself, on ids that the target has not taken in."""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax.models import kv_cache
from bytelax.models.blt import BLT, Context
from bytelax.models.kv_cache import Caches


def run(
    model: BLT,
    ids: Int[Array, "B W"],
    caches: Caches,
    *,
    contexts: tuple[Context, ...],
    start: Int[Array, " B"],
    patch: Int[Array, "B W"],
    first: Int[Array, "B W"],
    causal: int,
    encoded: Float[Array, "B W D"] | None = None,
    depth: int | None = None,
) -> tuple[Float[Array, "B W V"], Caches]:
    """Runs the decoder on the ids from position `start` on; returns logits and updated caches.

    Args:
      model: bound to its parameters.
      ids: bytes, and MASK where a byte is to be filled in.
      caches: the decoder's self-attention caches, up to `start`.
      contexts: rings of the latents' keys.
      start: position of the first id.
      patch: the patch whose latent each id reads.
      first: first position that each id sees, the attention window aside.
      causal: number of ids that are causal and predict the next byte. The others are the cells of
        one block: they see all of it, and predict their own byte.
      encoded: encoder states of the ids, for a decoder that reads them.
      depth: as in `Decoder`.
    """
    width = ids.shape[1]
    positions = start[:, None] + jnp.arange(width)
    span = kv_cache.causal_span(positions, window=model.config.decoder.window, first=first)
    in_block = jnp.arange(width) >= causal
    span = dataclasses.replace(span, last=jnp.where(in_block, positions[:, -1:], span.last))
    return model.decoder(ids, encoded, contexts, caches, patch=patch, span=span, depth=depth)
