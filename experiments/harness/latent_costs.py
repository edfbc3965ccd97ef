"""Bits per byte of a BLT on text, and what worse latents cost it."""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.model import Model
from bytelax.models.blt.latents import bits_by_latents
from experiments.harness import intervals

Bits = dict[str, tuple[float, float]]  # of each ablation the bits of a batch, and its bytes


def of_batches(
    model: Model, texts: Sequence[bytes], *, length: int, each: int, batch: int
) -> list[Bits]:
    """Bits of stretches of text under each of `latents.ABLATIONS`.

    Args:
      model: a BLT.
      texts: held-out text.
      length: ids of a stretch, BOS included.
      each: stretches of a text, evenly spread over it.
      batch: stretches that are run together: they give one another their latents, and share the
        mean one.

    Returns:
      the bits of each batch, in the order of the texts.
    """
    stretches = [
        vocab.encode(text[begin : begin + length - 1])
        for text in texts
        for begin in np.linspace(0, len(text) - length, each).astype(int)
    ]
    ids = np.array(stretches)
    return [
        jax.device_get(_bits(model.module, model.params, ids[begin : begin + batch]))
        for begin in range(0, len(ids), batch)
    ]


@functools.partial(jax.jit, static_argnums=0)
def _bits(module, params, ids):
    return bits_by_latents(module, params, jnp.asarray(ids))


def figures(batches: Sequence[Bits]) -> dict[str, dict]:
    """Bits per byte with the model's own latents, and bits per byte more under the ablations.

    Intervals are from resampling batches.
    """
    own = np.array([float(bits["own"][0]) for bits in batches])
    counts = [float(bits["own"][1]) for bits in batches]
    return {
        name: intervals.of_ratio(
            np.array([float(bits[name][0]) for bits in batches]) - own * (name != "own"), counts
        )
        for name in batches[0]
    }
