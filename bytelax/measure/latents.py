"""What the latents of a BLT are worth: its loss once they are stale, another text's, or their mean.

A decoder can predict bytes well from the bytes in its window alone. Then its latents decide
nothing, and figures of such a model say nothing about the Byte Latent Transformer.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.blt import BLT

Replace = Callable[[Float[Array, "B P G"], Int[Array, " B"]], Float[Array, "B P G"]]


def stale(patches: int) -> Replace:
    """Every byte reads the latent of so many patches earlier than its own, or the first one."""

    def replace(latents, count):
        index = jnp.maximum(jnp.arange(latents.shape[1]) - patches, 0)
        return latents[:, index]

    return replace


def another_text(latents: Float[Array, "B P G"], count: Int[Array, " B"]) -> Float[Array, "B P G"]:
    """Every text reads the latents of the text after it in the batch, over and over."""
    count = jnp.maximum(jnp.roll(count, -1), 1)[:, None]
    index = jnp.arange(latents.shape[1]) % count
    return jnp.take_along_axis(jnp.roll(latents, -1, axis=0), index[..., None], axis=1)


def mean(latents: Float[Array, "B P G"], count: Int[Array, " B"]) -> Float[Array, "B P G"]:
    """Every byte reads the mean over all closed patches of the batch."""
    closed = (jnp.arange(latents.shape[1]) < count[:, None])[..., None]
    total = jnp.sum(jnp.where(closed, latents, 0), axis=(0, 1))
    return jnp.broadcast_to(total / jnp.maximum(closed.sum(), 1), latents.shape)


ABLATIONS: dict[str, Replace] = {
    "own": lambda latents, count: latents,
    "stale_1": stale(1),
    "stale_4": stale(4),
    "other": another_text,
    "mean": mean,
}


def bits_by_latents(
    module: BLT, params: dict, ids: Int[Array, "B L"], *, max_patches: int | None = None
) -> dict[str, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Bits of the next bytes under each of `ABLATIONS`, and the number of bytes.

    The encoder and the global transformer run once; only what the decoder reads changes.

    Args:
      module: the BLT.
      params: its parameters.
      ids: texts of L ids, BOS first, padded with BOE. At least two, or no text is another.
      max_patches: as in `BLT.encode`.

    Returns:
      Name of the ablation -> sum of -log2 p over the texts' bytes, and their number; float32.
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

    sums = module.apply({"params": params}, method=bits)
    return {name: (total, there.sum().astype(jnp.float32)) for name, total in sums.items()}
