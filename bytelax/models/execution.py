"""Execution options of a network: devices, precision, and rematerialization."""

import dataclasses
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from bytelax.pods import sharding
from bytelax.pods.sharding import DATA, FSDP

Layer = TypeVar("Layer", bound=nn.Module)


@jax.custom_jvp
def rows_of(table: Float[Array, "R D"], ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
    """Computes `table[ids]`; the gradient is accumulated in float32 for any dtype of the table."""
    return table[ids]


# A byte that occurs thousands of times in a batch adds thousands of terms to the gradient of one
# row, and in bfloat16 a running sum of ones stops growing at 256.
@rows_of.defjvp
def _tangent(primals, tangents):
    (table, ids), (tangent, _) = primals, tangents
    # The transpose of this gather adds the rows up in float32 and then rounds the sum.
    return table[ids], tangent.astype(jnp.float32)[ids].astype(tangent.dtype)


def rows_on(
    mesh: Mesh, table: Float[Array, "R D"], ids: Int[Array, "B *S"]
) -> Float[Array, "B *S D"]:
    """As `rows_of`, with the columns of `table` and the rows of `ids` sharded over `mesh`.

    Each device looks up its columns for the rows of every device along the `fsdp` axis, and an
    all-to-all exchanges the results for the remaining columns of its own rows. Without this, XLA
    would materialize the gradient of the whole table on every device as soon as there is a `data`
    axis, and sum it over all of them.
    """
    rows = PartitionSpec((DATA, FSDP))

    def on_device(table, ids):
        found = rows_of(table, jax.lax.all_gather(ids, FSDP, tiled=True))
        return jax.lax.all_to_all(found, FSDP, 0, found.ndim - 1, tiled=True)

    per_device = jax.shard_map(
        on_device, mesh=mesh, in_specs=(PartitionSpec(None, FSDP), rows), out_specs=rows
    )
    return per_device(table, ids)


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
        `rows_on` and `by_rows`. None runs on one device.
      tensor_axis: inside `pods.sharding.spread`, the mesh axis over which heads and hidden units
        are split. None if every device holds all of them.
    """

    precision: jax.lax.Precision | None = None
    remat: bool = False
    scan: bool = False
    mesh: Mesh | None = None
    tensor_axis: str | None = None

    def layer(self, kind: type[Layer]) -> type[Layer]:
        """The class that runs a layer of this kind, on the same parameters."""
        return kind

    def product(self, x: Float[Array, "..."], kernel: Any, contracted: int) -> Float[Array, "..."]:
        """Contracts the last `contracted` axes of `x` with the first ones of `kernel`."""
        return jnp.tensordot(x, kernel, contracted, precision=self.precision)

    def logits(self, norm: Any, head: Any, hidden: Array) -> Float[Array, "B W V"]:
        """Applies the last norm and the output layer of a model; the logits are float32."""
        return head(norm(hidden)).astype(jnp.float32)

    def rows_of(self, table: Float[Array, "R D"], ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """Looks up rows of an embedding table: `table[ids]`."""
        if self.mesh is None:
            return rows_of(table, ids)
        return rows_on(self.mesh, table, ids)

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
