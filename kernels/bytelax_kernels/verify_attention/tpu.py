"""`verify_attention` for TPU: all heads of one row against one block of slots at a time.

Blocks to which no query of the row attends are neither fetched nor computed: the grid steps over
them while the block before stays in VMEM. They would have added exact zeros, so the bits of a
query's result do not depend on what the other queries attend to.

Heads of width below 128 are read with slots along the lanes. Otherwise every line of the cache
would be padded to 128, in HBM as well.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention.cost import cost
from bytelax_kernels.verify_attention.inputs import (
    Inputs,
    by_key_head,
    by_query,
    limits,
    precision,
)
from bytelax_kernels.verify_attention.reference import FLOOR
from bytelax_kernels.verify_attention.sight import CELLS, Sight, in_reach, sees

_LANES = 128
_VMEM = 12 * 2**20  # bytes; every TPU gives a kernel at least 16 MiB
_LONGEST_BLOCK = 512  # slots; a step then costs little compared with what it fetches


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these shapes."""
    bits = inputs.sight.ancestors is None or inputs.sizes.window <= CELLS
    return bits and block_size(inputs) > 0


def block_size(inputs: Inputs) -> int:
    """Number of slots in a block: a multiple of 128, or all slots; 0 if no block fits in VMEM."""
    slots = inputs.sizes.slots
    if vmem_bytes(inputs, min(slots, _LANES)) > _VMEM:
        return 0
    block = _LONGEST_BLOCK
    while block > _LANES and vmem_bytes(inputs, min(slots, block)) > _VMEM:
        block -= _LANES
    if slots <= block:
        return slots
    return _round_up(pl.cdiv(slots, pl.cdiv(slots, block)), _LANES)


def vmem_bytes(inputs: Inputs, block: int) -> int:
    """Bytes of VMEM for double-buffered inputs and outputs, the sums, and the scores of a block."""
    sizes = inputs.sizes
    kv_heads, dim = sizes.kv_heads, sizes.dim
    rows = kv_heads * _round_up(sizes.rows, 16)
    if dim < _LANES:
        line = _round_up(block, _LANES) * _round_up(dim, 16)
    else:
        line = _round_up(block, 16) * _round_up(dim, _LANES)
    caches = 2 * 2 * kv_heads * line * inputs.keys.dtype.itemsize
    dim = _round_up(dim, _LANES)
    windows = 2 * 2 * rows * dim * inputs.queries.dtype.itemsize + 2 * 3 * rows * _LANES * 4
    sums = rows * (dim + 2 * _LANES) * 4
    scores = 3 * rows * _round_up(block, _LANES) * 4
    return caches + windows + sums + scores


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """Computes `verify_attention` for inputs that `takes` accepts."""
    queries, keys, values, sight = inputs
    batch, window, kv_heads, _, slots, dim = inputs.sizes
    rows = inputs.sizes.rows
    block = block_size(inputs)
    needed, fetched = _blocks(sight, slots, block)

    def by_row(*shape):
        return pl.BlockSpec((1, *shape), lambda b, j, *_: (b, *(0,) * len(shape)))

    slots_last = dim < _LANES
    if slots_last:
        keys, values = keys.swapaxes(2, 3), values.swapaxes(2, 3)
        cache = pl.BlockSpec((1, kv_heads, dim, block), lambda b, j, n, _, at: (b, 0, 0, at[b, j]))
    else:
        cache = pl.BlockSpec((1, kv_heads, block, dim), lambda b, j, n, _, at: (b, 0, at[b, j], 0))
    out = pl.pallas_call(
        functools.partial(_attend, slots=slots, window=window, slots_last=slots_last),
        out_shape=jax.ShapeDtypeStruct((batch, kv_heads, rows, dim), queries.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(batch, needed.shape[1]),
            in_specs=[by_row(kv_heads, rows, dim), by_row(3, rows, 1), cache, cache],
            out_specs=by_row(kv_heads, rows, dim),
            scratch_shapes=[
                pltpu.VMEM((kv_heads, rows, 1), jnp.float32),
                pltpu.VMEM((kv_heads, rows, 1), jnp.float32),
                pltpu.VMEM((kv_heads, rows, dim), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=cost(inputs),
        name="verify_attention",
    )(
        sight.newest,
        needed,
        fetched,
        by_key_head(inputs),
        limits(inputs)[..., None],
        keys,
        values,
    )
    return by_query(out, inputs)


def _attend(
    newest_ref,
    needed_ref,
    fetched_ref,
    queries_ref,
    limits_ref,
    keys_ref,
    values_ref,
    out_ref,
    top_ref,
    total_ref,
    sum_ref,
    *,
    slots,
    window,
    slots_last,
):
    row, step = pl.program_id(0), pl.program_id(1)

    @pl.when(step == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, FLOOR)
        total_ref[...] = jnp.zeros_like(total_ref)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pl.when(needed_ref[row, step] == 1)
    def _():
        queries, keys, values = queries_ref[0], keys_ref[0], values_ref[0]
        dim_axis, slot_axis = (1, 2) if slots_last else (2, 1)
        block = keys.shape[slot_axis]
        slot = step * block + jax.lax.broadcasted_iota(jnp.int32, (1, block), 1)
        who = [limits_ref[0, i] for i in range(3)]
        seen = sees(slot, newest_ref[row], who, slots=slots, window=window)
        if slots % block:  # the last block extends beyond the end of the cache
            seen = seen & (slot < slots)
            line = jax.lax.broadcasted_iota(jnp.int32, values.shape, slot_axis)
            values = jnp.where(step * block + line < slots, values, jnp.zeros_like(values))

        scores = _batched(queries, keys, dim_axis) * queries.shape[-1] ** -0.5
        scores = jnp.where(seen[None], scores, -jnp.inf)
        top = jnp.maximum(top_ref[...], scores.max(-1, keepdims=True))
        weights = jnp.exp(scores - top)
        scale = jnp.exp(top_ref[...] - top)
        top_ref[...] = top
        total_ref[...] = total_ref[...] * scale + weights.sum(-1, keepdims=True)
        sum_ref[...] = sum_ref[...] * scale + _batched(
            weights.astype(values.dtype), values, slot_axis
        )

    @pl.when(step == pl.num_programs(1) - 1)
    def _():
        total = total_ref[...]
        out = sum_ref[...] / jnp.where(total > 0, total, 1)
        out_ref[0] = out.astype(out_ref.dtype)


def _batched(left, right, contracted):
    """Batched matmul f32[K, R, N] of [K, R, C] and `right`, whose axis `contracted` is C."""
    return jax.lax.dot_general(
        left,
        right,
        (((2,), (contracted,)), ((0,), (0,))),
        precision=precision(left.dtype),
        preferred_element_type=jnp.float32,
    )


def _blocks(sight: Sight, slots: int, block: int) -> tuple[Int[Array, "B N"], Int[Array, "B N"]]:
    """For each grid step, 1 if its block is needed, and the index of the block that is in VMEM."""
    seen = jnp.pad(in_reach(sight, slots), ((0, 0), (0, -slots % block)))
    needed = seen.reshape(seen.shape[0], -1, block).any(2)
    index = jnp.where(needed, jnp.arange(needed.shape[1]), needed.argmax(1)[:, None])
    return needed.astype(jnp.int32), jax.lax.cummax(index, axis=1).astype(jnp.int32)


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
