"""Rows of a table, with a gradient that adds up."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@jax.custom_jvp
def rows_of(table: Float[Array, "R D"], ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
    """`table[ids]`, whose gradient is summed in float32 whatever the dtype of the table.

    A byte that comes thousands of times in a batch adds as many terms to one row: in bfloat16 a sum
    of ones would stop at 256.
    """
    return table[ids]


@rows_of.defjvp
def _tangent(primals, tangents):
    (table, ids), (tangent, _) = primals, tangents
    # Transposed this adds the rows up in float32, and rounds the sum.
    return table[ids], tangent.astype(jnp.float32)[ids].astype(tangent.dtype)
