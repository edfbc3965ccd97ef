"""jnp implementation of `dense`: the oracle for the kernels, and the path of other platforms."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def dense(
    rows: Float[Array, "R D"],
    matrix: Float[Array, "D N"],
    *,
    scale: Float[Array, " D"] | None = None,
    eps: float = 0.0,
    onto: Float[Array, "R F"] | None = None,
    times: int = 1,
    gated: bool = False,
    precision: jax.lax.Precision | None = None,
) -> Float[Array, "R F"]:
    """Computes `api.dense` one step after the other, each rounded to the dtype of the rows."""
    if scale is not None:
        rows = normalized(rows, scale, eps=eps)
    out = jnp.dot(rows, matrix, precision=precision)
    if gated:
        gate, other = jnp.split(out, 2, axis=-1)
        out = jax.nn.silu(gate) * other
    return added(out, onto, times=times)


def added(
    out: Float[Array, "..."], onto: Float[Array, "..."] | None, *, times: int
) -> Float[Array, "..."]:
    """Computes `times * onto + out`, rounded after each sum; None adds nothing."""
    if onto is not None:
        for _ in range(times):
            out = onto + out
    return out


def normalized(
    x: Float[Array, "*B D"], scale: Float[Array, " D"], *, eps: float
) -> Float[Array, "*B D"]:
    """Root-mean-square normalization (arXiv 1910.07467) with float32 statistics."""
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + eps)
    return wide.astype(x.dtype) * scale
