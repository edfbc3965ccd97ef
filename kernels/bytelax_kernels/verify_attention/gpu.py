"""`verify_attention` for NVIDIA Hopper (Mosaic GPU), one thread block per row, key head and part.

A part is every n-th block of slots. A long cache then keeps all multiprocessors busy at batch size
1, and a short row still uses all parts. Which blocks belong to a part depends on shapes only. The
sums of several parts are added outside the kernel; a single part writes its result itself.
Blocks to which no query of the row attends are neither fetched nor computed, since they would add
exact zeros.
"""

import functools
import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Float, Int

from bytelax_kernels import hopper
from bytelax_kernels.verify_attention.cost import cost
from bytelax_kernels.verify_attention.inputs import Inputs, by_key_head, by_query, limits
from bytelax_kernels.verify_attention.reference import FLOOR
from bytelax_kernels.verify_attention.sight import CELLS, Sight, in_reach, sees

_ROWS = 64  # rows of a wgmma, to which the G W queries are padded
_BLOCK = 64  # number of slots in a block
_STAGES = 3  # number of blocks in flight at once
_MULTIPROCESSORS = 132
_SHARED = 227 * 2**10  # bytes of shared memory that a thread block may use


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these shapes and dtypes; float32 has no wgmma."""
    sizes = inputs.sizes
    return (
        not inputs.in_lines
        and inputs.queries.dtype == inputs.keys.dtype
        and inputs.queries.dtype in (jnp.bfloat16, jnp.float16)
        and sizes.rows <= _ROWS
        and sizes.slots >= _BLOCK
        and sizes.slots % 8 == 0  # number of lines in a tile
        and sizes.dim % 64 == 0
        and (inputs.sight.ancestors is None or sizes.window <= CELLS)
        and shared_bytes(sizes.dim) <= _SHARED
    )


def shared_bytes(dim: int) -> int:
    """Bytes of shared memory for fetched blocks, queries, sums, and statistics of the softmax."""
    return 2 * dim * (2 * _STAGES * _BLOCK + _ROWS) + 4 * _ROWS * (dim + 2) + 4096


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """Computes `verify_attention` for inputs that `takes` accepts."""
    queries, keys, values, sight = inputs
    batch, window, kv_heads, _, slots, dim = inputs.sizes
    rows = inputs.sizes.rows
    blocks, counts = _parts(sight, slots, max(1, _MULTIPROCESSORS // (batch * kv_heads)))
    parts = counts.shape[1]

    def tiled(rows, dtype, *stages):
        line = 128 // jnp.dtype(dtype).itemsize
        transforms = (plgpu.TilingTransform((8, line)), plgpu.SwizzleTransform(128))
        return plgpu.SMEM((*stages, rows, dim), dtype, transforms=transforms)

    further = (0, _ROWS - rows)
    by_all = jnp.stack([sight.first.max(1), sight.last.min(1)], axis=1)
    shape = (batch, kv_heads, parts, _ROWS)
    summed = queries.dtype if parts == 1 else jnp.float32
    sums, tops, totals = plgpu.kernel(
        functools.partial(_attend, slots=slots, window=window),
        out_type=(
            jax.ShapeDtypeStruct((*shape, dim), summed),
            jax.ShapeDtypeStruct(shape, jnp.float32),
            jax.ShapeDtypeStruct(shape, jnp.float32),
        ),
        grid=(batch, kv_heads, parts),
        grid_names=("row", "head", "part"),
        kernel_name="verify_attention",
        **hopper.costing(cost(inputs)),
        scratch_types=[
            tiled(_ROWS, queries.dtype),
            tiled(_BLOCK, keys.dtype, _STAGES),
            tiled(_BLOCK, keys.dtype, _STAGES),
            tiled(_ROWS, summed),
            plgpu.SMEM((_ROWS,), jnp.float32),
            plgpu.SMEM((_ROWS,), jnp.float32),
            plgpu.Barrier(),
            plgpu.Barrier(num_arrivals=2, num_barriers=_STAGES),
            plgpu.Barrier(),
        ],
    )(
        sight.newest,
        by_all,
        blocks,
        counts,
        jnp.pad(by_key_head(inputs), ((0, 0), (0, 0), further, (0, 0))),
        jnp.pad(limits(inputs), ((0, 0), (0, 0), further)),
        keys,
        values,
    )
    if parts == 1:
        return by_query(sums[:, :, 0, :rows], inputs)
    share = jnp.exp(tops - tops.max(2, keepdims=True))
    total = (totals * share).sum(2)[..., None]
    out = (sums * share[..., None]).sum(2) / jnp.where(total > 0, total, 1)
    return by_query(out[:, :, :rows], inputs)


def _attend(
    newest_ref,
    by_all_ref,
    blocks_ref,
    counts_ref,
    queries_ref,
    limits_ref,
    keys_ref,
    values_ref,
    sums_ref,
    tops_ref,
    totals_ref,
    queries_buffer,
    keys_buffer,
    values_buffer,
    sum_buffer,
    top_buffer,
    total_buffer,
    queries_there,
    block_there,
    all_done,
    *,
    slots,
    window,
):
    row, head, part = (jax.lax.axis_index(name) for name in ("row", "head", "part"))
    dim = queries_ref.shape[-1]
    count = counts_ref[row, part]
    newest = newest_ref[row]
    lap = newest - jax.lax.rem(newest, slots)  # the position that slot 0 holds

    def start(step):  # first slot; the last block may overlap the one before
        return jnp.minimum(blocks_ref[row, part, step] * _BLOCK, slots - _BLOCK)

    def fetch(step):
        stage = jax.lax.rem(step, _STAGES)
        for cache, buffer in ((keys_ref, keys_buffer), (values_ref, values_buffer)):
            block = cache.at[row, head, pl.ds(start(step), _BLOCK)]
            plgpu.copy_gmem_to_smem(block, buffer.at[stage], block_there.at[stage])

    plgpu.copy_gmem_to_smem(queries_ref.at[row, head], queries_buffer, queries_there)
    for step in range(_STAGES):
        pl.when(step < count)(functools.partial(fetch, jnp.int32(step)))
    who = [hopper.load(limits_ref.at[row, i], _BY_ROW) for i in range(3)]
    plgpu.barrier_wait(queries_there)

    def masked(step, scores):
        slot = plgpu.broadcasted_iota(jnp.int32, (_ROWS, _BLOCK), 1, layout=plgpu.Layout.WGMMA)
        slot = slot + start(step)
        wide = [_wide(numbers, _BLOCK) for numbers in who]
        seen = sees(slot, newest, wide, slots=slots, window=window)
        seen = seen & (slot >= blocks_ref[row, part, step] * _BLOCK)
        return jnp.where(seen, scores, -jnp.inf)

    def seen_by_all(step):
        """Whether all queries see all slots of a block, whose positions follow one another."""
        begin = start(step)
        written = begin + _BLOCK - 1 <= newest - lap  # in this lap, or all of them in the last one
        position = begin + jnp.where(written, lap, lap - slots)
        return (
            (begin == blocks_ref[row, part, step] * _BLOCK)
            & (written | (begin > newest - lap))
            & (position >= by_all_ref[row, 0])
            & (position + _BLOCK - 1 <= by_all_ref[row, 1])
        )

    def attend(step, carry):
        sums, top, total = carry
        stage = jax.lax.rem(step, _STAGES)
        plgpu.barrier_wait(block_there.at[stage])
        scores = _product(queries_buffer, keys_buffer.at[stage], transposed=True)
        scores = jax.lax.cond(
            seen_by_all(step), lambda scores: scores, functools.partial(masked, step), scores
        )
        scores = scores * dim**-0.5
        higher = jnp.maximum(top, scores.max(axis=1))
        weights = jnp.exp(scores - _wide(higher, _BLOCK))
        scale = jnp.exp(top - higher)
        total = total * scale + weights.sum(axis=1)
        added = _product(
            weights.astype(values_buffer.dtype), values_buffer.at[stage], transposed=False
        )
        sums = sums * _wide(scale, dim) + added

        # All warps must have read the block before the next fetch overwrites it.
        plgpu.barrier_arrive(all_done)
        plgpu.barrier_wait(all_done)
        pl.when(step + _STAGES < count)(functools.partial(fetch, step + _STAGES))
        return sums, higher, total

    carry = (
        plgpu.layout_cast(jnp.zeros((_ROWS, dim), jnp.float32), plgpu.Layout.WGMMA),
        plgpu.layout_cast(jnp.full((_ROWS,), FLOOR, jnp.float32), _BY_ROW),
        plgpu.layout_cast(jnp.zeros((_ROWS,), jnp.float32), _BY_ROW),
    )
    sums, top_buffer[...], total = jax.lax.fori_loop(0, count, attend, carry)
    total_buffer[...] = total
    if sums_ref.shape[2] == 1:
        sums = sums / _wide(jnp.where(total > 0, total, 1.0), dim)
    sum_buffer[...] = sums.astype(sum_buffer.dtype)
    plgpu.commit_smem()
    for buffer, out in ((sum_buffer, sums_ref), (top_buffer, tops_ref), (total_buffer, totals_ref)):
        plgpu.copy_smem_to_gmem(buffer, out.at[row, head, part])
    plgpu.wait_smem_to_gmem(0)


_BY_ROW = plgpu.Layout.WGMMA.reduce(1)


def _wide(numbers, columns):
    """Broadcasts one number per row to all columns."""
    return jax.lax.broadcast_in_dim(numbers, (_ROWS, columns), [0])


def _product(left, right, *, transposed):
    """Matmul f32[rows, N] of [rows, C], in registers or shared memory, and [C, N] in shared memory.

    With `transposed`, the second operand is stored as [N, C].
    """
    if transposed:
        right = right.transpose((1, 0))

    def multiply(out):
        plgpu.wgmma(out, left, right)
        return out[...]

    return pl.run_scoped(multiply, plgpu.ACC((_ROWS, right.shape[1]), jnp.float32))


def _parts(sight: Sight, slots: int, most: int) -> tuple[Int[Array, "B N M"], Int[Array, "B N"]]:
    """The blocks of each part to which some query of the row attends, and their number.

    The needed blocks of a part come first, in order.
    """
    blocks = math.ceil(slots / _BLOCK)
    parts = min(most, max(1, blocks // _STAGES))
    longest = math.ceil(blocks / parts)
    seen = jnp.pad(in_reach(sight, slots), ((0, 0), (0, longest * parts * _BLOCK - slots)))
    needed = seen.reshape(-1, longest, parts, _BLOCK).any(3).swapaxes(1, 2)
    # The n-th needed block has n needed ones before it: as many blocks have a lower or equal count.
    before = jnp.cumsum(needed, axis=2, dtype=jnp.int32)
    nth = jnp.arange(longest)[:, None]
    order = (before[:, :, None] <= nth).sum(3, dtype=jnp.int32)
    return order * parts + jnp.arange(parts)[:, None], before[:, :, -1]
