"""`verify_attention` for processors, compiled from `cpu.cc`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from bytelax_kernels import native
from bytelax_kernels.verify_attention.inputs import Inputs
from bytelax_kernels.verify_attention.sight import Sight

_DTYPES = (jnp.float32, jnp.bfloat16)


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these inputs: float32 or bfloat16."""
    keys, values = inputs.keys, inputs.values
    return (
        native.available()
        and inputs.queries.dtype in _DTYPES
        and keys.dtype in _DTYPES
        and keys.dtype == values.dtype
        and min(*inputs.queries.shape, *keys.shape) > 0
    )


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """Computes `api.verify_attention`, with sums over positions in order."""
    call = jax.ffi.ffi_call(
        "bytelax_verify_attention",
        jax.ShapeDtypeStruct(inputs.queries.shape, inputs.queries.dtype),
    )
    return call(inputs.queries, inputs.keys, inputs.values, *limits(inputs.sight))


def limits(sight: Sight) -> tuple[Array, Array, Array, Bool[Array, "..."]]:
    """What queries attend to, as the compiled kernels read it; no cells for a chain."""
    first, last, newest = (x.astype(jnp.int32) for x in sight[:3])
    cells = jnp.zeros((0,), bool) if sight.ancestors is None else sight.ancestors
    return first, last, newest, cells
