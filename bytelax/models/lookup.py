"""Embedding lookup with float32 gradients."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, UInt16


def rows_of(
    table: Float[Array, "R D"] | UInt16[Array, "R D"], ids: Int[Array, "*B"]
) -> Float[Array, "*B D"]:
    """Computes `table[ids]`; the gradient is accumulated in float32 for any dtype of the table.

    Args:
      table: the table, or its bits from `narrow.as_bits`, of which the rows become bfloat16.
      ids: indices of rows.
    """
    if table.dtype == jnp.uint16:
        return jax.lax.bitcast_convert_type(table[ids], jnp.bfloat16)
    return _rows_of(table, ids)


@jax.custom_jvp
def _rows_of(table, ids):
    return table[ids]


# A byte that occurs thousands of times in a batch adds thousands of terms to the gradient of one
# row, and in bfloat16 a running sum of ones stops growing at 256.
@_rows_of.defjvp
def _tangent(primals, tangents):
    (table, ids), (tangent, _) = primals, tangents
    # The transpose of this gather adds the rows up in float32 and then rounds the sum.
    return table[ids], tangent.astype(jnp.float32)[ids].astype(tangent.dtype)
