"""A table of what the byte before adds to the logits of a byte: the Markov head of DSpark.

Source: DSpark (arXiv 2607.05147).
"""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.layers import parameter
from bytelax.models.lookup import rows_of

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
