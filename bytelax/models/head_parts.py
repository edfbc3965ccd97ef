"""What several prediction heads consist of: a byte's table, a confidence, fused states."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.execution import Execution, rows_of
from bytelax.models.layers import Dense, parameter

_SMALL, _ZEROS = nn.initializers.normal(0.02), nn.initializers.zeros


class ByteTable:
    """Base of Flax modules that predict bytes apart, and correct each by the byte before it.

    Attributes:
      values: number of byte values.
      rank: rank of the table; None is a full table with a row for each byte, 0 is no table.
    """

    values: int
    rank: int | None

    def make_table(self) -> None:
        """Creates the parameters; called in `setup`. The table adds nothing at first."""
        assert isinstance(self, nn.Module)
        values, rank = self.values, self.rank
        if rank is None:
            self.table = parameter(self, "table", _ZEROS, (values, values), ("byte", "byte"))
        elif rank:
            self.left = parameter(self, "left", _SMALL, (values, rank), ("byte", None))
            self.right = parameter(self, "right", _ZEROS, (rank, values), (None, "byte"))

    def table_row(self, before: Int[Array, "*B"]) -> Float[Array, "*B N"]:
        """Returns what the id before a byte adds to its logits."""
        value = jnp.maximum(before - vocab.OFFSET, 0)
        if self.rank is None:
            return rows_of(self.table, value).astype(jnp.float32)
        if not self.rank:
            return jnp.zeros((*before.shape, self.values), jnp.float32)
        return (rows_of(self.left, value) @ self.right).astype(jnp.float32)


class BlockTable(ByteTable, nn.Module):
    """The table alone, for the blocks of masked bytes that a BLT-D fills in one pass."""

    values: int
    rank: int | None = None

    def setup(self):
        self.make_table()

    def __call__(self, before: Int[Array, "*B"]) -> Float[Array, "*B N"]:
        """Returns what the id before a byte adds to its logits."""
        return self.table_row(before)


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
