"""`verify_attention` with cuDNN's fused attention on NVIDIA GPUs, for comparison with our kernel.

cuDNN takes the cache as `[B, S, K, D]`, which costs a copy, and reads all slots.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.verify_attention.inputs import Inputs
from bytelax_kernels.verify_attention.sight import positions, visible


def takes(inputs: Inputs) -> bool:
    """Whether cuDNN supports these dtypes and head widths."""
    dtypes = inputs.queries.dtype, inputs.keys.dtype
    half = dtypes in [(dtype, dtype) for dtype in (jnp.bfloat16, jnp.float16)]
    return half and not inputs.in_lines and inputs.sizes.dim % 8 == 0 and inputs.sizes.dim <= 256


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """Computes `verify_attention` for inputs that `takes` accepts."""
    queries, keys, values, sight = inputs
    seen = visible(sight, positions(sight.newest, inputs.sizes.slots))
    out = jax.nn.dot_product_attention(
        queries,
        keys.swapaxes(1, 2),
        values.swapaxes(1, 2),
        mask=seen[:, None],
        implementation="cudnn",
    )
    # cuDNN gives masked slots a very low score instead of -inf, so an empty mask needs this.
    return jnp.where(seen.any(2)[..., None, None], out, 0)
