"""`unmask` for NVIDIA Hopper (Mosaic GPU): one warpgroup a row of the batch, in registers."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental.pallas import mosaic_gpu as plgpu
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.unmask.row import Form, fill
from bytelax_kernels.unmask.rule import Rule, Unmasked

_CELLS = 64  # of the register layout; a block's are padded to them
_LINE = 8  # ids, likewise
_IDS = 320  # more do not fit into the registers


def takes(logits) -> bool:
    """Whether the kernel has room for blocks of this shape."""
    return logits.shape[1] <= _CELLS and logits.shape[2] <= _IDS


def unmask(
    logits: Float[Array, "B C V"],
    ids: Int[Array, "B C"],
    masked: Bool[Array, "B C"],
    uniforms: Float[Array, "B C"],
    temperature: Float[Array, " B"] | None,
    rule: Rule,
) -> Unmasked:
    """As the reference, for what it `takes`."""
    batch, cells, size = logits.shape
    greedy = temperature is None
    lines = ((0, 0), (0, 0), (0, -size % _LINE))
    logits = jnp.pad(logits.astype(jnp.float32), lines, constant_values=-jnp.inf)
    spare = _CELLS - cells
    logits = jnp.pad(logits, ((0, 0), (0, spare), (0, 0)))  # finite: laws of nobody's cells
    numbers = jax.ShapeDtypeStruct((batch, _CELLS), jnp.float32)
    laws = jax.ShapeDtypeStruct(logits.shape, jnp.float32)
    made = plgpu.kernel(
        functools.partial(_unmask, rule=rule, greedy=greedy),
        out_type=(numbers, numbers, numbers, *[laws] * (not greedy)),
        grid=(batch,),
        grid_names=("row",),
        kernel_name="unmask",
        scratch_types={"buffer": plgpu.SMEM((_CELLS,), jnp.float32)},
    )(
        jnp.ones(batch, jnp.float32) if greedy else temperature,
        logits,
        jnp.pad(masked.astype(jnp.float32), ((0, 0), (0, spare))),
        jnp.pad(uniforms, ((0, 0), (0, spare))),
    )
    chosen, drawn, confidence = (x[:, :cells] for x in made[:3])
    chosen, drawn = chosen > 0, drawn.astype(jnp.int32)
    law = None if greedy else made[3][:, :cells, :size]
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn, confidence, law)


def _unmask(temperature_ref, logits_ref, masked_ref, uniforms_ref, *outs, buffer, rule, greedy):
    row = jax.lax.axis_index("row")
    masked, uniform = (
        plgpu.load(ref, (row,), layout=_BY_CELL, optimized=False)
        for ref in (masked_ref, uniforms_ref)
    )
    logits = plgpu.load(logits_ref, (row,), layout=plgpu.Layout.WGMMA, optimized=False)
    temperature = None if greedy else temperature_ref[row]
    form = _FORM._replace(across=functools.partial(_across, buffer))
    made = fill(form, logits, masked, uniform, temperature, rule)
    for out, value in zip(outs, made, strict=False):  # a greedy law is None and has no place
        out[row] = value


_BY_CELL = plgpu.Layout.WGMMA.reduce(1)
_BY_COLUMN = plgpu.Layout.WGMMA.reduce(0)


def _iota(shape, axis):
    index = plgpu.broadcasted_iota(jnp.int32, shape, axis, layout=plgpu.Layout.WGMMA)
    return index.astype(jnp.float32)


def _wide(numbers, columns):
    return jax.lax.broadcast_in_dim(numbers, (_CELLS, columns), [0])


def _across(buffer, numbers):
    """Through shared memory, where every thread finds the others' numbers."""
    buffer[...] = numbers
    plgpu.commit_smem()
    row = plgpu.load(buffer, (), layout=_BY_COLUMN, optimized=False)
    return jax.lax.broadcast_in_dim(row, (_CELLS, _CELLS), [1])


_FORM = Form(
    iota=_iota,
    wide=_wide,
    across=None,  # needs the kernel's memory
    largest=lambda x: x.max(axis=1),
    total=lambda x: x.sum(axis=1),
)
