"""`unmask` for TPU: one row of the batch a step, all its cells in VMEM."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, Int

from bytelax_kernels.unmask.row import Form, fill
from bytelax_kernels.unmask.rule import Rule, Unmasked

_VMEM = 12 * 2**20  # bytes; every TPU lets a kernel have 16 MiB


def takes(logits) -> bool:
    """Whether the kernel has room for blocks of this shape."""
    return vmem_bytes(logits) <= _VMEM


def vmem_bytes(logits) -> int:
    """VMEM of one row's cells: the logits and the law, each twice, and what is made of them."""
    cells, ids = (-(-size // tile) * tile for size, tile in zip(logits.shape[1:], (8, 128)))
    return (2 * 2 + 6) * cells * ids * 4 + 12 * cells * 128 * 4 + 4 * cells * max(cells, 128) * 4


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
    law = pl.BlockSpec((1, cells, size), lambda b, *_: (b, 0, 0))
    number = pl.BlockSpec((1, cells, 1), lambda b, *_: (b, 0, 0))
    numbers = jax.ShapeDtypeStruct((batch, cells, 1), jnp.float32)
    greedy = temperature is None
    made = pl.pallas_call(
        functools.partial(_unmask, rule=rule, greedy=greedy),
        out_shape=(numbers, numbers, numbers, *[_float(logits)] * (not greedy)),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(batch,),
            in_specs=[law, number, number],
            out_specs=(number, number, number, *[law] * (not greedy)),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        cost_estimate=pl.CostEstimate(
            flops=logits.size * (10 if greedy else 10 + 3 * size.bit_length()),
            transcendentals=logits.size * (2 if greedy else 4),
            bytes_accessed=logits.size * 4 * (1 if greedy else 2) + 5 * batch * cells * 4,
        ),
        name="unmask",
    )(
        jnp.ones(batch, jnp.float32) if greedy else temperature,
        logits.astype(jnp.float32),
        masked.astype(jnp.float32)[..., None],
        uniforms[..., None],
    )
    chosen, drawn, confidence = (x[..., 0] for x in made[:3])
    chosen, drawn = chosen > 0, drawn.astype(jnp.int32)
    return Unmasked(
        jnp.where(chosen, drawn, ids), chosen, drawn, confidence, None if greedy else made[3]
    )


def _unmask(
    temperature_ref,
    logits_ref,
    masked_ref,
    uniforms_ref,
    chosen_ref,
    drawn_ref,
    confidence_ref,
    law_ref=None,
    *,
    rule,
    greedy,
):
    temperature = None if greedy else temperature_ref[pl.program_id(0)]
    chosen_ref[0], drawn_ref[0], confidence_ref[0], law = fill(
        _COLUMNS, logits_ref[0], masked_ref[0], uniforms_ref[0], temperature, rule
    )
    if not greedy:
        law_ref[0] = law


def _across(numbers):
    """A column as a row, by the sum over a diagonal."""
    cells = numbers.shape[0]
    diagonal = _iota((cells, cells), 0) == _iota((cells, cells), 1)
    row = jnp.where(diagonal, numbers, 0.0).sum(0, keepdims=True)
    return jnp.broadcast_to(row, (cells, cells))


def _iota(shape, axis):
    return jax.lax.broadcasted_iota(jnp.int32, shape, axis).astype(jnp.float32)


def _float(x):
    return jax.ShapeDtypeStruct(x.shape, jnp.float32)


_COLUMNS = Form(
    iota=_iota,
    wide=lambda numbers, columns: jnp.broadcast_to(numbers, (numbers.shape[0], columns)),
    across=_across,
    largest=lambda x: x.max(1, keepdims=True),
    total=lambda x: x.sum(1, keepdims=True),
)
