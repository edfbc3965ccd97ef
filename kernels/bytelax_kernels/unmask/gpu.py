"""`unmask` for NVIDIA Hopper (Mosaic GPU): one warpgroup per row of the batch, in registers."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu

from bytelax_kernels import hopper
from bytelax_kernels.unmask.cost import cost
from bytelax_kernels.unmask.row import Form, fill
from bytelax_kernels.unmask.rule import Block, Rule, Unmasked

_CELLS = 64  # rows of the register layout, to which the cells of a block are padded
_LINE = 8  # the number of ids is padded to a multiple of this
_IDS = 320  # more ids do not fit into the registers


def takes(block: Block) -> bool:
    """Whether the kernel supports blocks of this shape."""
    _, cells, ids = block.logits.shape
    return cells <= _CELLS and ids <= _IDS


def unmask(block: Block, rule: Rule) -> Unmasked:
    """Computes `reference.unmask` for blocks that `takes` accepts."""
    logits, ids, masked, drawn = block
    batch, cells, size = logits.shape

    # Padding ids have probability 0. Padding cells have finite logits and are not masked.
    further = ((0, 0), (0, _CELLS - cells))
    logits = jnp.pad(logits, ((0, 0), (0, 0), (0, -size % _LINE)), constant_values=-jnp.inf)
    logits = jnp.pad(logits, (*further, (0, 0)))
    numbers = [jnp.pad(x.astype(jnp.float32), further) for x in (masked, drawn) if x is not None]
    chosen, drawn = plgpu.kernel(
        functools.partial(_unmask, rule=rule),
        out_type=[jax.ShapeDtypeStruct((batch, _CELLS), jnp.float32)] * 2,
        grid=(batch,),
        grid_names=("row",),
        kernel_name="unmask",
        **hopper.costing(cost(block)),
        scratch_types=[plgpu.SMEM((_CELLS,), jnp.float32)],
    )(logits, *numbers)
    chosen, drawn = chosen[:, :cells] > 0, drawn[:, :cells].astype(jnp.int32)
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn)


def _unmask(logits_ref, masked_ref, *refs, rule):
    *given, chosen_ref, drawn_ref, buffer = refs
    row = jax.lax.axis_index("row")
    logits = hopper.load(logits_ref.at[row], plgpu.Layout.WGMMA)
    masked, *drawn = (hopper.load(ref.at[row], _BY_CELL) for ref in (masked_ref, *given))
    made = fill(_form(buffer), logits, masked, drawn[0] if drawn else None, rule)
    chosen_ref[row], drawn_ref[row] = made


_BY_CELL = plgpu.Layout.WGMMA.reduce(1)
_BY_COLUMN = plgpu.Layout.WGMMA.reduce(0)


def _iota(shape, axis):
    index = plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=plgpu.Layout.WGMMA)
    return index.astype(jnp.float32)


def _wide(numbers, columns):
    return jax.lax.broadcast_in_dim(numbers, (_CELLS, columns), [0])


def _across(buffer, numbers):
    """`Form.across` through shared memory, since the numbers are in registers of other threads."""
    buffer[...] = numbers
    plgpu.commit_smem()
    row = hopper.load(buffer, _BY_COLUMN)
    return jax.lax.broadcast_in_dim(row, (_CELLS, _CELLS), [1])


def _form(buffer):
    return Form(
        iota=_iota,
        wide=_wide,
        across=functools.partial(_across, buffer),
        largest=lambda x: x.max(axis=1),
        total=lambda x: x.sum(axis=1),
    )
