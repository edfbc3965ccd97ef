"""`read_one` and `write` by XLA: the oracle for the kernels, and the path of other platforms."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax_kernels.append_attention.reference import append


def write(rings: tuple, new: tuple, slots: Int[Array, "B W"], *, by_head: bool) -> tuple:
    """Computes `api.write`."""
    if by_head:
        return tuple(append(ring, x, slots) for ring, x in zip(rings, new, strict=True))
    row = jnp.arange(slots.shape[0])[:, None]
    return tuple(
        ring.at[row, slots].set(x.astype(ring.dtype), mode="drop")
        for ring, x in zip(rings, new, strict=True)
    )


def read_one(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B S k K D"],
    values: Float[Array, "B S k K D"],
    slots: Int[Array, "B W"],
) -> Float[Array, "B W H D"]:
    """Computes `api.read_one`."""
    kv_heads, dim = keys.shape[3:]
    keys, values = (
        jnp.take_along_axis(part, slots[..., None, None, None], axis=1).astype(queries.dtype)
        for part in (keys, values)
    )
    # k is small, e.g. 2 or 4: elementwise products and sums instead of a tiny matmul per byte.
    # Rows and bytes are one axis: jaxlib 0.10 crashes on a product of rank 7 (see LOG.md), and
    # `jax.vmap` adds an axis.
    grouped = queries.reshape(-1, 1, kv_heads, queries.shape[2] // kv_heads, dim)
    keys, values = (part.reshape(-1, *part.shape[2:])[..., None, :] for part in (keys, values))
    scores = (grouped * keys).astype(jnp.float32).sum(-1)
    weights = jax.nn.softmax(scores * dim**-0.5, axis=1)[..., None]
    attended = (weights.astype(queries.dtype) * values).sum(1)
    return attended.reshape(queries.shape)
