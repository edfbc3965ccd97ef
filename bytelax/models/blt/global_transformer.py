"""The global latent transformer, which runs over closed patches."""

import flax.linen as nn
from jaxtyping import Array, Float

from bytelax.models import kv_cache
from bytelax.models.blt.config import BLTConfig
from bytelax.models.execution import Execution
from bytelax.models.kv_cache import Caches, Span
from bytelax.models.layers import project
from bytelax.models.transformer import Transformer


class Global(nn.Module):
    """The transformer over patches. No final norm."""

    config: BLTConfig
    execution: Execution = Execution()

    def setup(self):
        c = self.config
        if c.patch_vectors * c.encoder.dim != c.global_transformer.dim:
            self.project = project(c.global_transformer.dim)
        self.trunk = Transformer(c.global_transformer, self.execution)

    def __call__(
        self,
        patches: Float[Array, "B P kD"],
        caches: Caches | None = None,
        *,
        span: Span,
    ) -> tuple[Float[Array, "B P G"], Caches | None]:
        """Latents of patches. Under a window the caches are rings, which are read whole."""
        block = kv_cache.BLOCK if caches is not None and span.window is None else None
        if patches.shape[-1] != self.config.global_transformer.dim:
            patches = self.project(patches)
        return self.trunk(patches, caches, span=span, block=block)
