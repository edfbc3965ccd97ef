"""`append_attention` for NVIDIA GPUs (Pallas on Triton), one thread block per row and key head.

A thread block is the only one that reads or writes its head of the cache, so it can write the
window and attend to it. In a small batch launches are what attention costs, and this is one in
place of six or seven: the rotary positions, two scatters, and what surrounds the kernel of
`verify_attention`.
"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from bytelax_kernels.append_attention.reference import slots_of
from bytelax_kernels.append_attention.window import Window
from bytelax_kernels.verify_attention.inputs import precision
from bytelax_kernels.verify_attention.reference import FLOOR
from bytelax_kernels.verify_attention.sight import CELLS, flags, sees

_TILE = 16  # rows of a product of the tensor cores
_ROWS = 32  # queries of a key head; more are left to `verify_attention`
_BLOCK = 64  # number of slots in a block
_STAGES = 3  # number of blocks in flight at once
_MULTIPROCESSORS = 132


def takes(window: Window) -> bool:
    """Whether the kernel supports these shapes and dtypes, and the batch is small enough for it.

    In a larger batch bandwidth counts, for which `verify_attention` is made.
    """
    sizes, dtype = window.sizes, window.projections.qkv.dtype
    return (
        dtype == window.keys.dtype
        and dtype in (jnp.bfloat16, jnp.float16, jnp.float32)
        and sizes.rows <= _ROWS
        and sizes.batch * sizes.kv_heads <= _MULTIPROCESSORS
        and sizes.dim in (16, 32, 64, 128)
        and (window.sight.ancestors is None or sizes.window <= CELLS)
    )


def attention(
    window: Window,
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Computes `reference.attention` for windows that `takes` accepts."""
    (qkv, turns, frequency), keys, values, positions, sight = window
    sizes = window.sizes
    attended = (sizes.batch, sizes.window, sizes.kv_heads * sizes.group, sizes.dim)
    return pl.pallas_call(
        _attend,
        out_shape=[
            jax.ShapeDtypeStruct(shape, qkv.dtype) for shape in (attended, keys.shape, values.shape)
        ],
        grid=(sizes.batch, sizes.kv_heads),
        input_output_aliases={6: 1, 7: 2},
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=_STAGES),
        name="append_attention",
    )(
        qkv,
        turns,
        frequency,
        slots_of(positions, sizes.slots),
        jnp.stack([sight.first, sight.last, flags(sight)], axis=1),
        sight.newest,
        keys,
        values,
    )


def _attend(
    qkv_ref, turns_ref, frequency_ref, slots_ref, limits_ref, newest_ref, _, __, out_ref, keys_ref,
    values_ref,
):  # fmt: skip
    row, head = pl.program_id(0), pl.program_id(1)
    slots, dim = keys_ref.shape[2:]
    window, group = qkv_ref.shape[1], qkv_ref.shape[3] - 2
    count = group * window
    height = _TILE * pl.cdiv(count, _TILE)
    # Query `place` of the key head is that of entry `entry` in head `of_group` of its group.
    place, across = jnp.arange(height), jnp.arange(dim)[None]
    entry, of_group = jax.lax.rem(place, window), jax.lax.div(place, window)

    def lines(mask):
        return jnp.broadcast_to(mask[:, None], (len(mask), dim))

    def projected(part, mask, across=across):
        at = qkv_ref.at[row, entry[:, None], head, part, across]
        return plgpu.load(at, mask=lines(mask), other=0)

    turns = plgpu.load(turns_ref.at[row, entry]).astype(jnp.float32)
    phase = turns[:, None] * plgpu.load(frequency_ref.at[across // 2])
    cos, sin = jnp.cos(phase), jnp.where(across % 2 == 0, -jnp.sin(phase), jnp.sin(phase))

    def rotated(part, mask):
        x, other_of_pair = projected(part, mask), projected(part, mask, across ^ 1)
        turned = x.astype(jnp.float32) * cos + other_of_pair.astype(jnp.float32) * sin
        return turned.astype(x.dtype)

    mine = place < window
    slot = jnp.where(mine, plgpu.load(slots_ref.at[row, entry]), slots)
    written = lines(slot < slots)
    for ref, new in ((keys_ref, rotated(group, mine)), (values_ref, projected(group + 1, mine))):
        plgpu.store(ref.at[row, head, slot[:, None], across], new, mask=written)
    plgpu.debug_barrier()  # other threads of the block read what was written

    here = place < count
    queries = rotated(of_group[:, None], here)
    first, last, cells = (plgpu.load(limits_ref.at[row, index, entry]) for index in range(3))
    newest = newest_ref[row]

    def attend(block, carry):
        sums, top, total = carry
        number = block * _BLOCK + jnp.arange(_BLOCK)
        held = (row, head, number[:, None], across)
        keys, values = (
            plgpu.load(ref.at[held], mask=lines(number < slots), other=0)
            for ref in (keys_ref, values_ref)
        )
        exact = precision(keys.dtype)
        scores = plgpu.dot(queries, keys, trans_b=True, precision=exact) * dim**-0.5
        who = [x[:, None] for x in (first, last, cells)]
        seen = sees(number[None], newest, who, slots=slots, window=window)
        scores = jnp.where(seen & (number < slots)[None], scores, -jnp.inf)
        higher = jnp.maximum(top, scores.max(axis=1))
        weights = jnp.exp(scores - higher[:, None])
        scale = jnp.exp(top - higher)
        total = total * scale + weights.sum(axis=1)
        added = plgpu.dot(weights.astype(values.dtype), values, precision=exact)
        return sums * scale[:, None] + added, higher, total

    # A ring that has wrapped is read in full. Otherwise the blocks in front of what the queries
    # attend to and behind the newest position would add exact zeros.
    wrapped = newest >= slots
    lowest = jnp.minimum(jnp.where(here, first, newest).min(), newest - window + 1)
    begin = jnp.where(wrapped, 0, jnp.maximum(lowest, 0) // _BLOCK)
    end = jnp.where(wrapped, pl.cdiv(slots, _BLOCK), newest // _BLOCK + 1)
    zeros = jnp.zeros(height, jnp.float32)
    carry = jnp.zeros((height, dim), jnp.float32), zeros + FLOOR, zeros
    sums, _, total = jax.lax.fori_loop(begin, end, attend, carry)
    out = sums / jnp.where(total > 0, total, 1.0)[:, None]
    at = out_ref.at[row, entry[:, None], (head * group + of_group)[:, None], across]
    plgpu.store(at, out.astype(out_ref.dtype), mask=lines(here))
