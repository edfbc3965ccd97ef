"""`append_attention` for processors, compiled from `cpu.cc`."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.append_attention.inputs import Inputs
from bytelax_kernels.verify_attention import cpu
from bytelax_kernels.verify_attention import inputs as verify


def takes(inputs: Inputs) -> bool:
    """Whether the kernel supports these inputs, as that of `verify_attention`."""
    qkv = inputs.projections.qkv
    batch, width, kv_heads, parts, dim = qkv.shape
    queries: Any = jax.ShapeDtypeStruct((batch, width, kv_heads * (parts - 2), dim), qkv.dtype)
    alike = verify.Inputs(queries, inputs.keys, inputs.values, inputs.sight)
    return width <= inputs.sizes.slots and cpu.takes(alike)


def attention(
    inputs: Inputs,
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Computes `api.append_attention`; writes the cache in place, or a copy if it is not free."""
    projections, keys, values, positions, sight = inputs
    sizes = inputs.sizes
    heads = sizes.kv_heads * sizes.group
    shape = (sizes.batch, sizes.window, heads, sizes.dim)
    call = jax.ffi.ffi_call(
        "bytelax_append_attention",
        (jax.ShapeDtypeStruct(shape, projections.qkv.dtype), *map(jax.typeof, (keys, values))),
        input_output_aliases={3: 1, 4: 2},
    )
    attended, keys, values = call(
        projections.qkv, projections.turns.astype(jnp.int32),
        projections.frequency.astype(jnp.float32), keys, values, positions.astype(jnp.int32),
        *cpu.limits(sight),
    )  # fmt: skip
    return attended, keys, values
