"""How much a BLT relies on its latents: its loss with stale, foreign or mean latents.

A decoder can predict bytes well from the bytes in its attention window alone. Its latents then
hardly matter, and measurements of such a model say little about the Byte Latent Transformer.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from bytelax import vocab
from bytelax.models.blt import BLT

Replace = Callable[[Float[Array, "B P G"], Int[Array, " B"]], Float[Array, "B P G"]]


def stale(patches: int) -> Replace:
    """Returns an ablation in which each byte reads the latent `patches` patches before its own.

    If there is none, it reads the first one.
    """

    def replace(latents, count):
        index = jnp.maximum(jnp.arange(latents.shape[1]) - patches, 0)
        return latents[:, index]

    return replace


def late(share: float, key: Key[Array, ""]) -> Replace:
    """Returns a replacement by which a random share of the patches is read one patch late.

    A decoder that drafts past its patch reads a latent that is one patch old. It loses less by this
    if it was trained with such latents; see docs/training_blt.md.

    Args:
      share: the share of the patches, 0..1.
      key: PRNG key; it is consumed.
    """

    def replace(latents, count):
        which = jax.random.uniform(key, latents.shape[:2]) < share
        return jnp.where(which[..., None], stale(1)(latents, count), latents)

    return replace


def another_text(latents: Float[Array, "B P G"], count: Int[Array, " B"]) -> Float[Array, "B P G"]:
    """Replaces the latents of each text by those of the next one in the batch, repeated."""
    count = jnp.maximum(jnp.roll(count, -1), 1)[:, None]
    index = jnp.arange(latents.shape[1]) % count
    return jnp.take_along_axis(jnp.roll(latents, -1, axis=0), index[..., None], axis=1)


def mean(latents: Float[Array, "B P G"], count: Int[Array, " B"]) -> Float[Array, "B P G"]:
    """Replaces all latents by their mean over the closed patches of the batch."""
    closed = (jnp.arange(latents.shape[1]) < count[:, None])[..., None]
    total = jnp.sum(jnp.where(closed, latents, 0), axis=(0, 1))
    return jnp.broadcast_to(total / jnp.maximum(closed.sum(), 1), latents.shape)


ABLATIONS: dict[str, Replace] = {
    "own": lambda latents, count: latents,
    "stale_1": stale(1),
    "stale_2": stale(2),
    "stale_4": stale(4),
    "other": another_text,
    "mean": mean,
}


def bits_by_latents(
    module: BLT, params: dict, ids: Int[Array, "B L"], *, max_patches: int | None = None
) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Returns the bits of the next bytes under each of `ABLATIONS`, and the number of bytes.

    The encoder and the global transformer run once; only what the decoder reads changes.

    Args:
      module: the BLT.
      params: its parameters.
      ids: texts of L ids, BOS first, padded with BOE. There must be at least two, for "other" to
        differ from "own".
      max_patches: as in `BLT.encode`.

    Returns:
      A dict from the name of the ablation to the sum of -log2 p over the bytes of the texts, and
        the number of these bytes; float32.
    """
    targets = ids[:, 1:]
    there = targets != vocab.BOE

    def bits(model: BLT):
        text = model.encode(ids[:, :-1], max_patches=max_patches)
        count = jnp.minimum(text.closes.sum(1), text.latents.shape[1])
        sums = {}
        for name, replace in ABLATIONS.items():
            contexts = model.decoder.context(replace(text.latents, count))
            logits, _ = model.decoder(
                ids[:, :-1], text.states, contexts, patch=text.patch, span=text.span
            )
            nats = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            sums[name] = jnp.sum(jnp.where(there, nats, 0)) / jnp.log(2.0)
        return sums

    sums = nn.apply(bits, module)({"params": params})
    return {name: (total, there.sum().astype(jnp.float32)) for name, total in sums.items()}
