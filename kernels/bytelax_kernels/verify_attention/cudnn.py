"""`verify_attention` by the fused attention of cuDNN, for NVIDIA GPUs: our kernel competes with it.

It takes the cache as `[B, S, K, D]`, which costs a copy, and reads all slots.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.verify_attention.inputs import Inputs
from bytelax_kernels.verify_attention.sight import positions, visible


def takes(inputs: Inputs) -> bool:
    """Whether cuDNN is made for these dtypes and heads."""
    dtypes = inputs.queries.dtype, inputs.keys.dtype
    half = dtypes in [(dtype, dtype) for dtype in (jnp.bfloat16, jnp.float16)]
    return half and inputs.sizes.dim % 8 == 0 and inputs.sizes.dim <= 256


def attention(inputs: Inputs) -> Float[Array, "B W H D"]:
    """As `verify_attention`, for what it `takes`."""
    queries, keys, values, sight = inputs
    seen = visible(sight, positions(sight.newest, inputs.sizes.slots))
    out = jax.nn.dot_product_attention(
        queries,
        keys.swapaxes(1, 2),
        values.swapaxes(1, 2),
        mask=seen[:, None],
        implementation="cudnn",
    )
    # What is out of sight is unlikely to cuDNN, not impossible.
    return jnp.where(seen.any(2)[..., None, None], out, 0)
