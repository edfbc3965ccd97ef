"""`dense` for NVIDIA GPUs (Pallas on Triton): one thread block for every 16 columns.

With few rows reading the matrix is what a product costs, and every thread block has all rows at
hand: it finds their norm while it multiplies, and what follows needs no other thread block. XLA
makes two to four operations of the same.
"""

import math

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu
from jaxtyping import Array, Float

from bytelax_kernels.dense.operands import Form, Operands

_ROWS = 32  # more than these are left to XLA
_TILE = 16  # rows and columns of a product of the tensor cores
_DEPTH = 128  # rows of the matrix that are read in a step, at most
_STAGES = 5  # steps that are read ahead


def takes(operands: Operands) -> bool:
    """Whether the kernel supports these shapes and dtypes."""
    rows, kernel, *others = operands
    dtypes = {x.dtype for x in (rows, kernel, *others) if x is not None}
    return (
        0 < rows.shape[0] <= _ROWS
        and _depth(rows) >= _TILE
        and len(dtypes) == 1
        # Rows that are not normalized yet may leave the range of float16.
        and rows.dtype in (jnp.bfloat16, jnp.float32)
    )


def dense(operands: Operands, form: Form) -> Float[Array, "R F"]:
    """Computes `reference.dense` for operands that `takes` accepts."""
    rows, kernel = operands.rows, operands.kernel
    columns = kernel.shape[1] // (2 if form.gated else 1)
    shape = jax.ShapeDtypeStruct((rows.shape[0], columns), rows.dtype)
    given = [x if x is None or x.ndim == 2 else x[None] for x in operands]
    named = {name: x for name, x in zip(Operands._fields, given, strict=True) if x is not None}

    def multiply(*refs):
        *inputs, out = refs
        _multiply(Operands(**dict(zip(named, inputs, strict=True))), out, form)

    return pl.pallas_call(
        multiply,
        out_shape=shape,
        grid=(pl.cdiv(columns, _TILE),),
        compiler_params=plgpu.CompilerParams(num_warps=4, num_stages=_STAGES),
        name="dense",
    )(*named.values())


def _depth(rows):
    return math.gcd(rows.shape[1], _DEPTH)


def _multiply(refs, out, form):
    count, dim = refs.rows.shape
    depth = _depth(refs.rows)
    columns = out.shape[1]
    height = _TILE * pl.cdiv(count, _TILE)
    row = jnp.arange(height)[:, None]
    column = pl.program_id(0) * _TILE + jnp.arange(_TILE)[None]
    here = jnp.broadcast_to(row < count, (height, depth))
    there = jnp.broadcast_to(column < columns, (depth, _TILE))
    both = (row < count) & (column < columns)
    halves = 2 if form.gated else 1

    def step(at, carry):
        squares, *sums = carry
        along = at * depth + jnp.arange(depth)
        x = plgpu.load(refs.rows.at[row, along[None]], mask=here, other=0)
        if refs.scale is not None:
            wide = x.astype(jnp.float32)
            squares = squares + jnp.sum(wide * wide, axis=1)
            x = (wide * plgpu.load(refs.scale.at[0, along])).astype(x.dtype)
        for half in range(halves):
            place = refs.kernel.at[along[:, None], column + half * columns]
            tile = plgpu.load(place, mask=there, other=0)
            sums[half] = sums[half] + plgpu.dot(x, tile, precision=form.precision)
        return squares, *sums

    zeros = [jnp.zeros((height, _TILE), jnp.float32)] * halves
    start = jnp.zeros(height, jnp.float32), *zeros
    squares, *sums = jax.lax.fori_loop(0, dim // depth, step, start)
    if refs.scale is not None:
        sums = [x * jax.lax.rsqrt(squares / dim + form.eps)[:, None] for x in sums]
    total = sums[0]
    if form.gated:
        total = total * jax.lax.logistic(total) * sums[1]
    if refs.onto is not None:
        onto = plgpu.load(refs.onto.at[row, column], mask=both, other=0)
        total = total + form.times * onto.astype(jnp.float32)
    plgpu.store(out.at[row, column], total.astype(out.dtype), mask=both)
