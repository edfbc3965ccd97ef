"""`append_attention` for NVIDIA GPUs, compiled from `gpu.cu`: eight thread blocks a key head.

In a small batch launches are what attention costs, and this is one in place of six or seven: the
rotary positions, two scatters, and what surrounds the kernel of `verify_attention`.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.append_attention.inputs import Inputs
from bytelax_kernels.append_attention.reference import slots_of
from bytelax_kernels.verify_attention.sight import CELLS, flags

_ROWS = 32  # queries of a key head; more are left to `verify_attention`
_PARTS, _SLOTS, _TILE = 8, 8, 128  # thread blocks of a head; slots of a piece, of a tile
_WARPS = 8
_SHARED = 227 * 2**10  # bytes of shared memory that a thread block may use
_MULTIPROCESSORS = 132


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these shapes and dtypes, and the batch is small enough for it.

    In a larger batch bandwidth counts, for which `verify_attention` is made.
    """
    sizes, dtype = inputs.sizes, inputs.projections.qkv.dtype
    return (
        dtype == inputs.keys.dtype
        and dtype in (jnp.bfloat16, jnp.float32)
        and sizes.rows <= _ROWS
        and sizes.batch * sizes.kv_heads <= _MULTIPROCESSORS
        and sizes.dim in (16, 32, 64, 128)
        and (inputs.sight.ancestors is None or sizes.window <= CELLS)
        and shared_bytes(inputs) <= _SHARED
    )


def shared_bytes(inputs: Inputs) -> int:
    """Bytes of shared memory that the kernel needs, as it counts them."""
    sizes, size = inputs.sizes, inputs.keys.dtype.itemsize
    tile = min(_TILE, -(-sizes.slots // (_PARTS * _SLOTS)) * _SLOTS)
    of_a_query = sizes.dim * (2 + _WARPS) + _TILE + 4 + _PARTS
    return 2 * tile * (sizes.dim * size + 16) + 4 * (sizes.rows * of_a_query + 5 * sizes.window)


def attention(
    inputs: Inputs,
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Computes `reference.attention` for windows that `takes` accepts."""
    (qkv, turns, frequency), keys, values, positions, sight = inputs
    sizes = inputs.sizes
    shape = (sizes.batch, sizes.window, sizes.kv_heads * sizes.group, sizes.dim)
    call = jax.ffi.ffi_call(
        "bytelax_append_attention_gpu",
        (jax.ShapeDtypeStruct(shape, qkv.dtype), *map(jax.typeof, (keys, values))),
        input_output_aliases={4: 1, 5: 2},
    )
    where = slots_of(positions, sizes.slots)
    entries = jnp.stack([sight.first, sight.last, flags(sight), where, turns], axis=1)
    entries, newest = (x.astype(jnp.int32) for x in (entries, sight.newest))
    attended, keys, values = call(qkv, entries, frequency.astype(jnp.float32), newest, keys, values)
    return attended, keys, values
