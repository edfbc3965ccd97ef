"""The arguments of `append_attention`, as its implementations take them."""

from typing import NamedTuple

from jaxtyping import Array, Float, Int

from bytelax_kernels.append_attention.rotary import rotary
from bytelax_kernels.verify_attention.inputs import Sizes
from bytelax_kernels.verify_attention.sight import Sight


class Projections(NamedTuple):
    """Queries, keys and values of a window, before their rotary positions.

    Attributes:
      qkv: grouped by key head: the G queries of its group, its key and its value.
      turns: position of each entry for the rotary phases.
      frequency: of each pair; see `rotary`.
    """

    qkv: Float[Array, "B W K G2 D"]
    turns: Int[Array, "B W"]
    frequency: Float[Array, " F"]

    def rotated(
        self,
    ) -> tuple[Float[Array, "B W H D"], Float[Array, "B W K D"], Float[Array, "B W K D"]]:
        """Queries and keys with rotary positions applied, and values."""
        batch, window, _, _, dim = self.qkv.shape
        queries = self.qkv[..., :-2, :].reshape(batch, window, -1, dim)
        return (
            rotary(queries, self.turns, self.frequency),
            rotary(self.qkv[..., -2, :], self.turns, self.frequency),
            self.qkv[..., -1, :],
        )


class Inputs(NamedTuple):
    """A window, and the cache of S slots that it is written to.

    Attributes:
      projections: of the window.
      keys, values: the cache before the window, by head.
      positions: position of each entry of the window; -1 is not written.
      sight: what each query attends to.
    """

    projections: Projections
    keys: Float[Array, "B K S D"]
    values: Float[Array, "B K S D"]
    positions: Int[Array, "B W"]
    sight: Sight

    @property
    def sizes(self) -> Sizes:
        """Sizes of the axes."""
        batch, window, kv_heads, parts, dim = self.projections.qkv.shape
        return Sizes(batch, window, kv_heads, parts - 2, self.keys.shape[2], dim)
