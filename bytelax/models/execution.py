"""How a network runs: on which devices, at which precision, and what its backward pass keeps."""

import dataclasses
from typing import Any

import jax
from jax.sharding import Mesh

from bytelax.pods import sharding


@dataclasses.dataclass(frozen=True)
class Execution:
    """An attribute of every module. It changes rounding at most, never what is computed.

    Attributes:
      precision: of matrix products.
      remat: in the backward pass each block is computed again from its input, the only thing kept.
      scan: a stack that reads whole texts is a loop over its blocks, which compiles faster.
      mesh: of a training step. Parameters and the batch are split over it; see `lookup` and
        `by_rows`. None: one device.
      tensor_axis: in `pods.per_device`, the axis of the mesh that heads and hidden units are split
        over. None: every device has all of them.
    """

    precision: jax.lax.Precision | None = None
    remat: bool = False
    scan: bool = False
    mesh: Mesh | None = None
    tensor_axis: str | None = None

    def psum(self, x: Any) -> Any:
        """Sums over the devices that hold different heads or hidden units."""
        return x if self.tensor_axis is None else jax.lax.psum(x, self.tensor_axis)

    def all_gather(self, x: Any) -> Any:
        """Joins the last axis, of which each of these devices has a piece."""
        if self.tensor_axis is None:
            return x
        return jax.lax.all_gather(x, self.tensor_axis, axis=x.ndim - 1, tiled=True)

    def by_rows(self, x: Any) -> Any:
        """Splits the batch axis over the mesh, and no other axis.

        XLA chooses the layout of everything between two such constraints. Left alone it would
        split hidden states by width, as the weights that produce them are split.
        """
        if self.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, sharding.batch_sharding(self.mesh))


# Of the entropy model: its outputs are compared with a threshold, and on accelerators the default
# would round float32 inputs to bfloat16.
EXACT = Execution(precision=jax.lax.Precision.HIGHEST)
