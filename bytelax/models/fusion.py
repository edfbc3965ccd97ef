"""Fuses hidden states of several depths, the input of draft layers and draft blocks."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float


class Fuses:
    """Base of Flax modules that draft from the fused states of another model.

    Attributes:
      latent: whether the first of the states is a latent.
      fusion: the layer that projects the concatenated states to one feature.
      latent_norm: the norm of the latent, if there is one.
    """

    latent: bool
    fusion: Callable
    latent_norm: Callable

    def fuse(self, *states: Float[Array, "*B _"]) -> Float[Array, "*B D"]:
        """Fuses the states of each byte into one feature."""
        if self.latent:
            states = (self.latent_norm(states[0]), *states[1:])
        return self.fusion(jnp.concatenate(states, axis=-1))
