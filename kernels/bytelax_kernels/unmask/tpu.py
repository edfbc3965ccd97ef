"""`unmask` for TPU: one row of the batch per grid step, with all its cells in VMEM."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from bytelax_kernels.unmask.cost import cost
from bytelax_kernels.unmask.row import Form, fill
from bytelax_kernels.unmask.rule import Block, Rule, Unmasked

_VMEM = 12 * 2**20  # bytes; every TPU gives a kernel at least 16 MiB


def takes(block: Block) -> bool:
    """Whether the kernel supports blocks of this shape."""
    return vmem_bytes(block.logits.shape) <= _VMEM


def vmem_bytes(shape: tuple[int, ...]) -> int:
    """Bytes of VMEM for one row of cells: the double-buffered logits, and intermediate arrays."""
    _, cells, ids = shape
    cells, ids = -(-cells // 8) * 8, -(-ids // 128) * 128
    return 4 * cells * ((2 + 6) * ids + 12 * 128 + 4 * max(cells, 128))


def unmask(block: Block, rule: Rule) -> Unmasked:
    """Computes `reference.unmask` for blocks that `takes` accepts."""
    logits, ids, masked, drawn = block
    batch, cells, size = logits.shape
    whole = pl.BlockSpec((1, cells, size), lambda b: (b, 0, 0))
    number = pl.BlockSpec((1, cells, 1), lambda b: (b, 0, 0))
    numbers = [x.astype(jnp.float32)[..., None] for x in (masked, drawn) if x is not None]
    chosen, drawn = pl.pallas_call(
        functools.partial(_unmask, rule=rule),
        out_shape=[jax.ShapeDtypeStruct((batch, cells, 1), jnp.float32)] * 2,
        grid=(batch,),
        in_specs=[whole, *[number] * len(numbers)],
        out_specs=[number] * 2,
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        cost_estimate=cost(block),
        name="unmask",
    )(logits, *numbers)
    chosen, drawn = chosen[..., 0] > 0, drawn[..., 0].astype(jnp.int32)
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn)


def _unmask(logits_ref, masked_ref, *refs, rule):
    *given, chosen_ref, drawn_ref = refs
    drawn = given[0][0] if given else None
    made = fill(_COLUMNS, logits_ref[0], masked_ref[0], drawn, rule)
    chosen_ref[0], drawn_ref[0] = made


def _across(numbers):
    """`Form.across` as a sum over a diagonal, which turns the column into a row."""
    cells = numbers.shape[0]
    diagonal = _iota((cells, cells), 0) == _iota((cells, cells), 1)
    row = jnp.where(diagonal, numbers, 0.0).sum(0, keepdims=True)
    return jnp.broadcast_to(row, (cells, cells))


def _iota(shape, axis):
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis).astype(jnp.float32)


_COLUMNS = Form(
    iota=_iota,
    wide=lambda numbers, columns: jnp.broadcast_to(numbers, (numbers.shape[0], columns)),
    across=_across,
    largest=lambda x: x.max(1, keepdims=True),
    total=lambda x: x.sum(1, keepdims=True),
)
