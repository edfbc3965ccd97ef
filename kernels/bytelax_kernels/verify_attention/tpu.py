"""`verify_attention` for TPU: all heads of one row against one block of slots at a time.

A cache is read in lines, [B, S, K D]: a slot's heads lie side by side along the lanes. Heads that
are narrower than the 128 lanes waste none of them, and the keys of a byte are written in one piece.
Heads that share 128 lanes share a matmul, in which each query is zero in the lanes of the others.

Blocks to which no query of the row attends are neither fetched nor computed: the grid steps over
them while the block before stays in VMEM. They would have added exact zeros, so the bits of a
query's result do not depend on what the other queries attend to.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Float, Int

from bytelax_kernels.verify_attention.cost import cost
from bytelax_kernels.verify_attention.inputs import Inputs, heads_in_lines, limits, precision
from bytelax_kernels.verify_attention.reference import FLOOR
from bytelax_kernels.verify_attention.sight import CELLS, Sight, in_reach, sees

_LANES = 128
_VMEM = 12 * 2**20  # bytes; every TPU gives a kernel at least 16 MiB
_TILE = 16  # lines of a bfloat16 tile
_SHORTEST_BLOCK = 128  # slots
_LONGEST_BLOCK = 512  # slots; a step then costs little compared with what it fetches


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these shapes."""
    bits = inputs.sight.ancestors is None or inputs.sizes.window <= CELLS
    return bits and block_size(inputs) > 0


def block_size(inputs: Inputs) -> int:
    """Number of slots in a block: a multiple of 16, or all slots; 0 if no block fits in VMEM."""
    slots = inputs.sizes.slots
    if vmem_bytes(inputs, min(slots, _SHORTEST_BLOCK)) > _VMEM:
        return 0
    block = _LONGEST_BLOCK
    while block > _SHORTEST_BLOCK and vmem_bytes(inputs, min(slots, block)) > _VMEM:
        block -= _TILE
    return slots if slots <= block else _round_up(pl.cdiv(slots, pl.cdiv(slots, block)), _TILE)


def vmem_bytes(inputs: Inputs, block: int) -> int:
    """Bytes of VMEM for double-buffered inputs and outputs, the sums, and the scores of a block."""
    sizes = inputs.sizes
    heads = heads_in_a_group(sizes.kv_heads, sizes.dim)
    rows = _round_up(sizes.rows, _TILE)
    line = _round_up(sizes.kv_heads * sizes.dim, _LANES)
    caches = 2 * 2 * _round_up(block, _TILE) * line * inputs.keys.dtype.itemsize
    windows = 2 * 2 * rows * line * inputs.queries.dtype.itemsize + 2 * 3 * rows * _LANES * 4
    groups = sizes.kv_heads // heads
    sums = groups * heads * rows * (_round_up(heads * sizes.dim, _LANES) + 2 * _LANES) * 4
    scores = 3 * heads * rows * _round_up(block, _LANES) * 4
    return caches + windows + sums + scores


def heads_in_a_group(kv_heads: int, dim: int) -> int:
    """How many heads share a matmul: the fewest whose width is a multiple of the lanes, or all."""
    even = (n for n in range(1, kv_heads) if not kv_heads % n and not n * dim % _LANES)
    return next(even, kv_heads)


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """Computes `verify_attention` for inputs that `takes` accepts."""
    queries, keys, values, sight = heads_in_lines(inputs)
    batch, window, kv_heads, group, slots, dim = inputs.sizes
    rows = _round_up(inputs.sizes.rows, _TILE)
    block = block_size(inputs)
    needed, fetched = _blocks(sight, slots, block)
    heads = heads_in_a_group(kv_heads, dim)
    sums = (kv_heads // heads, heads * rows)

    def by_row(*shape):
        return pl.BlockSpec((1, *shape), lambda b, j, *_: (b, *(0,) * len(shape)))

    def padded(x, axis):
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, rows - inputs.sizes.rows)
        return jnp.pad(x, widths)

    # Queries of the same key head follow one another, g W + w, each with its key heads in a line.
    queries = queries.reshape(batch, window, kv_heads, group, dim).transpose(0, 3, 1, 2, 4)
    queries = queries.reshape(batch, group * window, kv_heads * dim)
    lines = pl.BlockSpec((1, block, kv_heads * dim), lambda b, j, n, _, at: (b, at[b, j], 0))
    out = pl.pallas_call(
        functools.partial(_attend, slots=slots, window=window, heads=heads, dim=dim),
        out_shape=jax.ShapeDtypeStruct((batch, rows, kv_heads * dim), queries.dtype),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(batch, needed.shape[1]),
            in_specs=[by_row(rows, kv_heads * dim), by_row(3, rows, 1), lines, lines],
            out_specs=by_row(rows, kv_heads * dim),
            scratch_shapes=[
                pltpu.VMEM((*sums, 1), jnp.float32),
                pltpu.VMEM((*sums, 1), jnp.float32),
                pltpu.VMEM((*sums, heads * dim), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        cost_estimate=cost(inputs),
        name="verify_attention",
    )(
        sight.newest,
        needed,
        fetched,
        padded(queries, 1),
        padded(limits(inputs), 2)[..., None],
        keys,
        values,
    )
    out = out[:, : group * window].reshape(batch, group, window, kv_heads, dim)
    return out.transpose(0, 2, 3, 1, 4).reshape(batch, window, kv_heads * group, dim)


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
    heads,
    dim,
):
    row, step = pl.program_id(0), pl.program_id(1)
    rows, block = queries_ref.shape[1], keys_ref.shape[1]
    width = heads * dim
    groups = [(g, slice(g * width, (g + 1) * width)) for g in range(top_ref.shape[0])]
    lane = jax.lax.broadcasted_iota(jnp.int32, (rows, width), 1)
    of_head = [(lane >= i * dim) & (lane < (i + 1) * dim) for i in range(heads)]

    @pl.when(step == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, FLOOR)
        total_ref[...] = jnp.zeros_like(total_ref)
        sum_ref[...] = jnp.zeros_like(sum_ref)

    @pl.when(needed_ref[row, step] == 1)
    def _():
        slot = step * block + jax.lax.broadcasted_iota(jnp.int32, (1, block), 1)
        who = [limits_ref[0, i] for i in range(3)]
        seen = sees(slot, newest_ref[row], who, slots=slots, window=window)
        if slots % block:  # the last block extends beyond the end of the cache
            seen = seen & (slot < slots)
            line = step * block + jax.lax.broadcasted_iota(jnp.int32, (block, width), 0)
        for group, lanes in groups:
            queries, keys, values = (
                ref[0, :, lanes] for ref in (queries_ref, keys_ref, values_ref)
            )
            if slots % block:
                values = jnp.where(line < slots, values, jnp.zeros_like(values))
            alone = [jnp.where(own, queries, jnp.zeros_like(queries)) for own in of_head]
            scores = _product(jnp.concatenate(alone), keys, 1) * dim**-0.5
            scores = jnp.where(seen, scores.reshape(heads, rows, block), -jnp.inf)
            scores = scores.reshape(heads * rows, block)
            top = jnp.maximum(top_ref[group], scores.max(-1, keepdims=True))
            weights = jnp.exp(scores - top)
            scale = jnp.exp(top_ref[group] - top)
            top_ref[group] = top
            total_ref[group] = total_ref[group] * scale + weights.sum(-1, keepdims=True)
            added = _product(weights.astype(values.dtype), values, 0)
            sum_ref[group] = sum_ref[group] * scale + added

    @pl.when(step == pl.num_programs(1) - 1)
    def _():
        for group, lanes in groups:
            total = total_ref[group]
            each = sum_ref[group] / jnp.where(total > 0, total, 1)
            out = each[:rows]
            for i in range(1, heads):
                out = jnp.where(of_head[i], each[i * rows : (i + 1) * rows], out)
            out_ref[0, :, lanes] = out.astype(out_ref.dtype)


def _product(left, right, contracted):
    """Matmul f32[R, N] of [R, C] and `right`, whose axis `contracted` is C."""
    return jax.lax.dot_general(
        left,
        right,
        (((1,), (contracted,)), ((), ())),
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
