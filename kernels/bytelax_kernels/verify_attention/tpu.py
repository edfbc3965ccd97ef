"""`verify_attention` for TPU: all heads of one row against one block of slots at a time.

Blocks that no query of the row sees are neither fetched nor computed: the grid steps over them
with the block before still in place. What is skipped would have added exact zeros, so a query's
bits do not hang on what the rest of the window sees.

Heads of fewer than 128 dimensions are read with the slots along the lanes: the other way round
every line of the cache would be padded to 128, in memory too.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention.reference import precision
from bytelax_kernels.verify_attention.sight import Sight, flags, positions, reach

_FLOOR = -1e30  # as in the reference
_LANES = 128
_CELLS = 32  # of a tree: one bit each
_VMEM = 12 * 2**20  # bytes; every TPU lets a kernel have 16 MiB
_LONGEST_BLOCK = 512  # slots; beyond, steps cost little beside what they fetch


def takes(queries, keys, sight: Sight) -> bool:
    """Whether the kernel has room for these shapes."""
    bits = sight.ancestors is None or queries.shape[1] <= _CELLS
    return bits and block_size(queries, keys) > 0


def block_size(queries, keys) -> int:
    """Slots of a block, a multiple of 128 or all; 0 if not even the smallest fits into VMEM.

    Args:
      queries, keys: arrays or `jax.ShapeDtypeStruct`s, as in `verify_attention`.
    """
    slots = keys.shape[2]
    if vmem_bytes(queries, keys, min(slots, _LANES)) > _VMEM:
        return 0
    block = _LONGEST_BLOCK
    while block > _LANES and vmem_bytes(queries, keys, min(slots, block)) > _VMEM:
        block -= _LANES
    if slots <= block:
        return slots
    return _round_up(pl.cdiv(slots, pl.cdiv(slots, block)), _LANES)


def vmem_bytes(queries, keys, block: int) -> int:
    """VMEM of the buffers, each twice, the sums and the scores of one block."""
    _, kv_heads, _, dim = keys.shape
    rows = kv_heads * _round_up(queries.shape[1] * queries.shape[2] // kv_heads, 16)
    if dim < _LANES:
        line = _round_up(block, _LANES) * _round_up(dim, 16)
    else:
        line = _round_up(block, 16) * _round_up(dim, _LANES)
    caches = 2 * 2 * kv_heads * line * keys.dtype.itemsize
    dim = _round_up(dim, _LANES)
    windows = 2 * 2 * rows * dim * queries.dtype.itemsize + 2 * 3 * rows * _LANES * 4
    sums = rows * (dim + 2 * _LANES) * 4
    scores = 3 * rows * _round_up(block, _LANES) * 4
    return caches + windows + sums + scores


def attention(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    sight: Sight,
) -> Float[Array, "B W H D"]:
    """As `verify_attention`, for shapes that it `takes`."""
    batch, window, heads, dim = queries.shape
    kv_heads, slots = keys.shape[1:3]
    group = heads // kv_heads
    rows = group * window
    block = block_size(queries, keys)
    needed, fetched = _blocks(sight, slots, block)

    def by_row(*shape):
        return pl.BlockSpec((1, *shape), lambda b, j, *_: (b, *(0,) * len(shape)))

    slots_last = dim < _LANES
    if slots_last:
        keys, values = keys.swapaxes(2, 3), values.swapaxes(2, 3)
        cache = pl.BlockSpec((1, kv_heads, dim, block), lambda b, j, n, _, at: (b, 0, 0, at[b, j]))
    else:
        cache = pl.BlockSpec((1, kv_heads, block, dim), lambda b, j, n, _, at: (b, 0, at[b, j], 0))
    scored = batch * heads * window * slots
    out = pl.pallas_call(
        functools.partial(_attend, slots=slots, window=window, slots_last=slots_last),
        out_shape=jax.ShapeDtypeStruct((batch, kv_heads, rows, dim), queries.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(batch, needed.shape[1]),
            in_specs=[by_row(kv_heads, rows, dim), *[by_row(rows, 1)] * 3, cache, cache],
            out_specs=by_row(kv_heads, rows, dim),
            scratch_shapes=[
                pltpu.VMEM((kv_heads, rows, 1), jnp.float32),
                pltpu.VMEM((kv_heads, rows, 1), jnp.float32),
                pltpu.VMEM((kv_heads, rows, dim), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=pl.CostEstimate(
            flops=4 * scored * dim,
            transcendentals=scored,
            bytes_accessed=2 * queries.nbytes + keys.nbytes + values.nbytes,
        ),
        name="verify_attention",
    )(
        sight.newest,
        needed,
        fetched,
        queries.reshape(batch, window, kv_heads, group, dim)
        .transpose(0, 2, 3, 1, 4)
        .reshape(batch, kv_heads, rows, dim),
        *(jnp.tile(x, (1, group))[..., None] for x in (sight.first, sight.last, flags(sight))),
        keys,
        values,
    )
    return out.reshape(batch, heads, window, dim).swapaxes(1, 2)


def _attend(
    newest_ref,
    needed_ref,
    fetched_ref,
    queries_ref,
    first_ref,
    last_ref,
    flags_ref,
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
        top_ref[...] = jnp.full_like(top_ref, _FLOOR)
        total_ref[...] = jnp.zeros_like(total_ref)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pl.when(needed_ref[row, step] == 1)
    def _():
        queries, keys, values = queries_ref[0], keys_ref[0], values_ref[0]
        dim_axis, slot_axis = (1, 2) if slots_last else (2, 1)
        block = keys.shape[slot_axis]
        slot = step * block + jax.lax.broadcasted_iota(jnp.int32, (1, block), 1)
        newest = newest_ref[row]
        lap = newest - newest % slots  # the position in slot 0, of those written last
        position = jnp.where(slot <= newest - lap, lap + slot, lap + slot - slots)
        seen = (position >= first_ref[0]) & (position <= last_ref[0])
        cell = position - (newest - window + 1)
        flag = jnp.right_shift(flags_ref[0], jnp.clip(cell, 0, _CELLS - 1)) & 1
        seen = seen | ((flag == 1) & (cell >= 0) & (cell < window) & (position >= 0))
        if slots % block:  # the last block ends in what lies behind the cache
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
    """f32[K, R, N] from [K, R, C] and `right`, whose axis `contracted` is C."""
    return jax.lax.dot_general(
        left,
        right,
        (((2,), (contracted,)), ((0,), (0,))),
        precision=precision(left.dtype),
        preferred_element_type=jnp.float32,
    )


def _blocks(sight: Sight, slots: int, block: int) -> tuple[Int[Array, "B N"], Int[Array, "B N"]]:
    """For each step 1 if its block is needed, and the block that lies in VMEM then."""
    lowest, highest = reach(sight)
    position = positions(sight.newest, slots)
    seen = (position >= lowest[:, None]) & (position <= highest[:, None])
    seen = jnp.pad(seen, ((0, 0), (0, -slots % block)))
    needed = seen.reshape(seen.shape[0], -1, block).any(2)
    index = jnp.where(needed, jnp.arange(needed.shape[1]), needed.argmax(1)[:, None])
    return needed.astype(jnp.int32), jax.lax.cummax(index, axis=1).astype(jnp.int32)


def _round_up(number, multiple):
    return -(-number // multiple) * multiple
