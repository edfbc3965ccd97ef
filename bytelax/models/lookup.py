"""Embedding lookup with float32 gradients."""

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from bytelax.pods.sharding import DATA, FSDP


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
