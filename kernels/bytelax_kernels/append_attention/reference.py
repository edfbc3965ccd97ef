"""`append_attention` in two steps: what the kernel is compared with, and what other shapes run."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bytelax_kernels.append_attention.inputs import Inputs
from bytelax_kernels.verify_attention import verify_attention


def slots_of(positions: Int[Array, "B W"], slots: int) -> Int[Array, "B W"]:
    """The slot of each position, and one after the last for those that are not written."""
    return jnp.where(positions < 0, slots, positions % slots)


def append(
    cache: Float[Array, "B K S D"], new: Float[Array, "B W K D"], slot: Int[Array, "B W"]
) -> Float[Array, "B K S D"]:
    """Writes the entries of a window to their slots; slots out of bounds are dropped."""
    # Rows and heads are merged into one axis, as in the attention's matmul. With an axis of size 1
    # between the two, XLA on CPU fuses the update into the matmul and copies the cache for it.
    batch, heads, slots, dim = cache.shape
    row, slot = jnp.arange(batch * heads)[:, None], jnp.repeat(slot, heads, axis=0)
    new = new.astype(cache.dtype).swapaxes(1, 2).reshape(batch * heads, -1, dim)
    merged = cache.reshape(batch * heads, slots, dim)
    return merged.at[row, slot].set(new, mode="drop").reshape(cache.shape)


def attention(
    inputs: Inputs, *, block_kv: int | None = None
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Computes `api.append_attention`."""
    slot = slots_of(inputs.positions, inputs.sizes.slots)
    queries, *new = inputs.projections.rotated()
    keys, values = (
        append(cache, x, slot) for cache, x in zip((inputs.keys, inputs.values), new, strict=True)
    )
    attended = verify_attention(queries, keys, values, **inputs.sight._asdict(), block_kv=block_kv)
    return attended, keys, values
