"""The transformer block: self-attention and a gated MLP, each behind a norm and on a residual."""

import flax.linen as nn
from bytelax_kernels.append_attention import Projections
from jaxtyping import Array, Float, Int

from bytelax.models.attention import Attend, Cache, SelfAttention
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, RMSNorm


class SwiGLU(nn.Module):
    """The gated MLP `down(silu(gate(x)) * up(x))` (arXiv 2002.05202), gate and up in one matrix."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.gate_up = Dense((2, c.ffn_dim), ("embed", None, "hidden"), execution)
        self.down = Dense((c.dim,), ("hidden", "embed"), execution)

    def __call__(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        """Computes the update of the residual stream."""
        both = self.gate_up(x)
        hidden = nn.silu(both[..., 0, :]) * both[..., 1, :]
        return self.execution.psum(self.down(hidden))


class Block(nn.Module):
    """A pre-norm transformer block: `x + attention(norm(x))`, then `x + mlp(norm(x))`."""

    config: TransformerConfig
    execution: Execution = Execution()

    def setup(self):
        c, execution = self.config, self.execution
        self.attention_norm, self.attention = RMSNorm(c.norm_eps), SelfAttention(c, execution)
        self.mlp_norm, self.mlp = RMSNorm(c.norm_eps), SwiGLU(c, execution)

    def __call__(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """Runs the block over a window.

        Args:
          x: hidden states before the block.
          cache: cache of its attention.
          positions: positions for the rotary phases.
          attend: decides which positions each query attends to.

        Returns:
          Hidden states after the block, and its cache with the window written to it.
        """
        x, cache = self.attends(x, cache, positions=positions, attend=attend)
        return self.transforms(x), cache

    def attends(
        self,
        x: Float[Array, "B W D"],
        cache: Cache,
        *,
        positions: Int[Array, "B W"],
        attend: Attend,
    ) -> tuple[Float[Array, "B W D"], Cache]:
        """The first half: `x + attention(norm(x))`, and the cache."""
        update, cache = self.attention(
            self.attention_norm(x), cache, positions=positions, attend=attend
        )
        return x + update, cache

    def transforms(self, x: Float[Array, "B W D"]) -> Float[Array, "B W D"]:
        """The second half: `x + mlp(norm(x))`."""
        return x + self.mlp(self.mlp_norm(x))

    def projections(self, x: Float[Array, "B W D"], positions: Int[Array, "B W"]) -> Projections:
        """Queries, keys and values of the attention."""
        return self.attention.projections(self.attention.qkv(self.attention_norm(x)), positions)
