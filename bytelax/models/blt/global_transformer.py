"""The global latent transformer, which runs over closed patches (arXiv 2412.09871, section 3.1)."""

import flax.linen as nn
from jaxtyping import Array, Float

from bytelax.models import kv_cache
from bytelax.models.configs import BLTConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import project
from bytelax.models.transformer import Transformer


class Global(nn.Module):
    """The global latent transformer over patches, without a final norm."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c = self.config
        if c.patch_vectors * c.encoder.dim != c.global_transformer.dim:
            self.project = project(c.global_transformer.dim, self.execution)
        self.trunk = Transformer(c.global_transformer, self.execution)

    def __call__(
        self,
        patches: Float[Array, "B P kD"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B P G"], Caches | None]:
        """Computes the latents of patches.

        Args:
          patches: pooled vectors from `Encoder.patches`.
          caches: self-attention caches, or None for whole texts. Without an attention window they
            grow with the text and are read in blocks; with one they are rings and are read whole.
          span: indices of the patches and what each of them attends to.

        Returns:
          One latent per patch, and the caches with the patches written to them.
        """
        block = kv_cache.BLOCK if caches is not None and span.window is None else None
        if patches.shape[-1] != self.config.global_transformer.dim:
            patches = self.project(patches)
        return self.trunk(patches, caches, span=span, block=block)
