"""Embedding lookup with float32 gradients, and without copies of a table on a CPU."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt16


def rows_of(
    table: Float[Array, "R D"] | UInt16[Array, "R D"], ids: Int[Array, "*B"]
) -> Float[Array, "*B D"]:
    """Computes `table[ids]`; the gradient is accumulated in float32 for any dtype of the table.

    Args:
      table: the table, or its bits from `tables_as_bits`, of which the rows become bfloat16.
      ids: indices of rows.
    """
    if table.dtype == jnp.uint16:
        return jax.lax.bitcast_convert_type(table[ids], jnp.bfloat16)
    return _rows_of(table, ids)


def tables_as_bits(params: Any) -> Any:
    """Views bfloat16 embedding tables on a CPU as uint16, without copying them.

    XLA:CPU has no gather in bfloat16: it converts the whole table to float32 first, and keeps the
    copy for as long as the program runs. A hash table of 6 GB would take 12 GB more.

    Args:
      params: parameters of a model. Other arrays, and tables on several devices, are unchanged.
    """

    def bits(path, x):
        if path[-1].key != "embedding" or x.dtype != jnp.bfloat16 or len(x.devices()) > 1:
            return x
        (device,) = x.devices()
        if device.platform != "cpu":
            return x
        return jax.device_put(np.asarray(x).view(np.uint16), device, may_alias=True)

    return jax.tree_util.tree_map_with_path(bits, params)


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
