"""A head that predicts the latent of a patch without the encoder and the global transformer."""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bytelax.models.block import SwiGLU
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm, project

RECENT = 8  # bytes of a patch that the head reads: its last ones
_HIDDEN = 32


class LatentHead(nn.Module):
    """Predicts the latent of a patch from the latent before it, its bytes and a decoder state.

    Of the bytes it reads what the encoder reads: the sums of their byte and n-gram embeddings,
    which are looked up. So a prediction costs one pass of this network. Predictions can take the
    place of the latent before, to predict the next one.

    Attributes:
      config: the width, `dim`, and the hidden units, `ffn_dim`.
      execution: how the head runs.
    """

    config: TransformerConfig
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self,
        latent: Float[Array, "B P G"],
        state: Float[Array, "B P D"],
        recent: Float[Array, "B P R E"],
        inside: Bool[Array, "B P R"],
    ) -> Float[Array, "B P G"]:
        """Predicts the latent of a patch.

        Args:
          latent: the latent of the patch before.
          state: the decoder's last state at the byte before the last one of the patch. It has not
            read the patch's own latent.
          recent: `Encoder.looked_up` of the latest RECENT bytes, up to the last one of the patch.
          inside: which of these belong to the patch.
        """
        c = self.config
        read = jnp.where(inside[..., None], recent, 0)
        mean = read.sum(-2) / jnp.maximum(inside.sum(-1, keepdims=True), 1).astype(read.dtype)
        parts = {"latent": latent, "state": state, "mean": mean, "last": recent[..., -1, :]}
        normed = [RMSNorm(c.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(c.dim, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        norm = RMSNorm(c.norm_eps, name="mlp_norm").of(x)
        x = SwiGLU(c, self.execution, name="mlp")(x, norm=norm)
        x = RMSNorm(c.norm_eps, name="norm")(x)
        return project(latent.shape[-1], self.execution, name="out")(x)


class ClosingHead(nn.Module):
    """Predicts whether a byte is the last of its patch, in place of the entropy model.

    Attributes:
      norm_eps: of the norms.
      execution: how the head runs.
    """

    norm_eps: float
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], looked_up: Float[Array, "*B E"]
    ) -> Float[Array, " *B"]:
        """Returns the logit, in float32.

        Args:
          state: the decoder's last state at the byte before.
          looked_up: `Encoder.looked_up` of the byte.
        """
        parts = {"state": state, "last": looked_up}
        normed = [RMSNorm(self.norm_eps, name=f"{name}_norm")(x) for name, x in parts.items()]
        x = project(_HIDDEN, self.execution, name="inward")(jnp.concatenate(normed, axis=-1))
        out = Dense((1,), ("embed", None), self.execution, name="out")(nn.silu(x))
        return out[..., 0].astype(jnp.float32)
