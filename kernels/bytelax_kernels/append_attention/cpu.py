"""`append_attention` for processors, compiled from `cpu.cc`."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.append_attention.window import Window
from bytelax_kernels.verify_attention import cpu
from bytelax_kernels.verify_attention.inputs import Inputs


def takes(window: Window) -> bool:
    """Whether the kernel supports these inputs, as that of `verify_attention`."""
    qkv = window.projections.qkv
    batch, width, kv_heads, parts, dim = qkv.shape
    queries = jax.ShapeDtypeStruct((batch, width, kv_heads * (parts - 2), dim), qkv.dtype)
    inputs = Inputs(queries, window.keys, window.values, window.sight)  # type: ignore[arg-type]
    return width <= window.sizes.slots and cpu.takes(inputs)


def attention(
    window: Window,
) -> tuple[Float[Array, "B W H D"], Float[Array, "B K S D"], Float[Array, "B K S D"]]:
    """Computes `api.append_attention`; writes the cache in place, or a copy if it is not free."""
    projections, keys, values, positions, sight = window
    sizes = window.sizes
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
