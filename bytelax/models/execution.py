"""Execution options of a network: devices, precision, and rematerialization."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from bytelax.models import lookup
from bytelax.pods import sharding


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a module runs; an attribute of every module.

    These options affect rounding at most; they never change what is computed. `models.fused` has
    the execution of programs that decode.

    Attributes:
      precision: precision of matrix products.
      remat: rematerialize each block in the backward pass, so that only its input is stored.
      scan: run a stack over whole texts as a `lax.scan` over its blocks, which compiles faster.
      mesh: mesh of a training step, over which parameters and the batch are sharded; see
        `lookup.rows_on` and `by_rows`. None runs on one device.
      tensor_axis: inside `pods.per_device.spread`, the mesh axis over which heads and hidden units
        are split. None if every device holds all of them.
    """

    precision: jax.lax.Precision | None = None
    remat: bool = False
    scan: bool = False
    mesh: Mesh | None = None
    tensor_axis: str | None = None

    def product(
        self, x: Float[Array, "..."], kernel: Float[Array, "..."], contracted: int
    ) -> Float[Array, "..."]:
        """Contracts the last `contracted` axes of `x` with the first ones of `kernel`."""
        return jnp.tensordot(x, kernel, contracted, precision=self.precision)

    def rows_of(self, table: Float[Array, "R D"], ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """Looks up rows of an embedding table: `table[ids]`."""
        if self.mesh is None:
            return lookup.rows_of(table, ids)
        return lookup.rows_on(self.mesh, table, ids)

    def psum(self, x: Any) -> Any:
        """Sums `x` over the devices that hold different heads or hidden units."""
        return x if self.tensor_axis is None else jax.lax.psum(x, self.tensor_axis)

    def agreed(self, values: Any) -> Any:
        """The integers of the first device along the tensor axis, on all of its devices."""
        if self.tensor_axis is None:
            return values
        flat, restored = ravel_pytree(values)  # one exchange for all
        first = jax.lax.axis_index(self.tensor_axis) == 0
        return restored(jax.lax.psum(jnp.where(first, flat, 0), self.tensor_axis))

    def all_gather(self, x: Any) -> Any:
        """Concatenates the last axis of `x` over the devices along the tensor axis."""
        if self.tensor_axis is None:
            return x
        return jax.lax.all_gather(x, self.tensor_axis, axis=x.ndim - 1, tiled=True)

    def by_rows(self, x: Any) -> Any:
        """Constrains `x` to be sharded over the mesh along its batch axis only.

        XLA chooses the shardings between two such constraints. Without them it would split hidden
        states by width, like the weights that produce them.
        """
        if self.mesh is None:
            return x
        return jax.lax.with_sharding_constraint(x, sharding.batch_sharding(self.mesh))


# For the entropy model. Its outputs are compared with a threshold, and the default precision of
# accelerators would round float32 inputs to bfloat16.
EXACT = Execution(precision=jax.lax.Precision.HIGHEST)
