"""A head that predicts whether a byte will be accepted, before the byte is drawn."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.execution import Execution
from bytelax.models.layers import Dense, parameter
from bytelax.models.lookup import rows_of

SAMPLED, GREEDY = 0, 1  # the two outputs


class Confidence(nn.Module):
    """Predicts the acceptance of a byte from the state that predicts it and the byte before it.

    Output 0 is for sampling: the overlap sum(min(p, q)) of the drafter's distribution and the
    model's. Output 1 is for greedy decoding: whether both have the same likeliest byte. The head
    learns from the states without changing them. Source: DSpark (arXiv 2607.05147).

    Attributes:
      values: number of byte values.
      execution: how the head runs.
    """

    values: int
    execution: Execution = Execution()

    @nn.compact
    def __call__(
        self, state: Float[Array, "*B D"], before: Int[Array, "*B"]
    ) -> Float[Array, "*B 2"]:
        """Returns both outputs as logits, in float32."""
        zeros = nn.initializers.zeros
        table = parameter(self, "table", zeros, (self.values, 2), ("byte", None))
        out = Dense((2,), ("embed", None), self.execution, zeros, name="out")
        found = out(jax.lax.stop_gradient(state))
        found = found + rows_of(table, jnp.maximum(before - vocab.OFFSET, 0))
        return found.astype(jnp.float32)
