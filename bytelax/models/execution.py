"""Execution options of a network: devices, precision, and rematerialization."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from bytelax_kernels.dense import added
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh

from bytelax.pods import sharding


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a module runs; an attribute of every module.

    These options affect rounding at most; they never change what is computed.

    Attributes:
      precision: precision of matrix products.
      remat: rematerialize each block in the backward pass, so that only its input is stored.
      scan: run a stack over whole texts as a `lax.scan` over its blocks, which compiles faster.
      mesh: mesh of a training step, over which parameters and the batch are sharded; see
        `layers.lookup` and `by_rows`. None runs on one device.
      tensor_axis: inside `pods.per_device.spread`, the mesh axis over which heads and hidden units
        are split. None if every device holds all of them.
    """

    precision: jax.lax.Precision | None = None
    remat: bool = False
    scan: bool = False
    mesh: Mesh | None = None
    tensor_axis: str | None = None

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

    def add(self, dense: Callable, x: Any, onto: Any, *, times: int = 1) -> Any:
        """`dense(x)`, summed as by `psum`, and added to `times * onto` unless that is None."""
        if self.tensor_axis is None:
            return dense(x, onto=onto, times=times)
        return added(self.psum(dense(x)), onto, times=times)

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
