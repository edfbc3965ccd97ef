"""jnp implementations of `verify_attention`: the oracle of the kernels and the CPU path."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.verify_attention.sight import Sight, positions, reach, visible

# The running maximum starts here rather than at -inf, so that a block in which a query sees
# nothing rescales by exp(0) and adds zeros: skipping it or computing it gives the same bits.
_FLOOR = -1e30


def dense(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    sight: Sight,
) -> Float[Array, "B W H D"]:
    """Scores every slot and masks those that are out of sight."""
    scores = _scores(queries, keys, positions(sight.newest, keys.shape[2]), sight)
    top = jnp.maximum(scores.max(-1, keepdims=True), _FLOOR)
    weights = jnp.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    weights = weights / jnp.where(total > 0, total, 1)
    return _heads(_weighted(weights, values), queries)


def blocked(
    queries: Float[Array, "B W H D"],
    keys: Float[Array, "B K S D"],
    values: Float[Array, "B K S D"],
    sight: Sight,
    block: int,
) -> Float[Array, "B W H D"]:
    """Online softmax over the blocks of slots that some query of the batch sees."""
    batch, window, heads, dim = queries.shape
    kv_heads, slots = keys.shape[1:3]
    block = min(block, slots)
    lowest, highest = reach(sight)
    begin, end = lowest.min() // block, highest.max() // block

    def attend(carry):
        index, top, total, heads_sum = carry
        # The last block may overlap its predecessor: `position` masks what was already seen.
        start = jnp.minimum(index * block, slots - block)
        position = start + jnp.arange(block)
        position = jnp.where(position >= index * block, position, -1)[None]
        scores = _scores(queries, _block(keys, start, block), position, sight)
        new_top = jnp.maximum(top, scores.max(-1, keepdims=True))
        weights = jnp.exp(scores - new_top)
        scale = jnp.exp(top - new_top)
        total = total * scale + weights.sum(-1, keepdims=True)
        heads_sum = heads_sum * scale + _weighted(weights, _block(values, start, block))
        return index + 1, new_top, total, heads_sum

    shape = (batch, kv_heads, heads // kv_heads * window)
    carry = (
        begin,
        jnp.full((*shape, 1), _FLOOR, jnp.float32),
        jnp.zeros((*shape, 1), jnp.float32),
        jnp.zeros((*shape, dim), jnp.float32),
    )
    _, _, total, heads_sum = jax.lax.while_loop(lambda c: c[0] <= end, attend, carry)
    return _heads(heads_sum / jnp.where(total > 0, total, 1), queries)


def _scores(queries, keys, position, sight):
    """f32[B, K, H/K * W, S], -inf where the slot's position is out of sight."""
    batch, window, heads, dim = queries.shape
    kv_heads, slots = keys.shape[1:3]
    group = heads // kv_heads
    queries = queries.reshape(batch, window, kv_heads, group, dim).transpose(0, 2, 3, 1, 4)
    # Rows and heads as one batch axis of the product: see the caches of bytelax.
    scores = jnp.einsum(
        "xqd,xsd->xqs",
        queries.reshape(batch * kv_heads, group * window, dim),
        keys.reshape(batch * kv_heads, slots, dim),
        precision=precision(keys.dtype),
        preferred_element_type=jnp.float32,
    ).reshape(batch, kv_heads, group * window, slots)
    seen = jnp.tile(visible(sight, position), (1, group, 1))[:, None]
    return jnp.where(seen, scores * dim**-0.5, -jnp.inf)


def _weighted(weights, values):
    """f32[B, K, H/K * W, D]."""
    batch, kv_heads, slots, dim = values.shape
    return jnp.einsum(
        "xqs,xsd->xqd",
        weights.astype(values.dtype).reshape(batch * kv_heads, -1, slots),
        values.reshape(batch * kv_heads, slots, dim),
        precision=precision(values.dtype),
        preferred_element_type=jnp.float32,
    ).reshape(batch, kv_heads, -1, dim)


def _heads(attended, queries):
    """f32[B, K, H/K * W, D] -> [B, W, H, D] in the dtype of the queries."""
    batch, window, heads, dim = queries.shape
    attended = attended.reshape(batch, heads, window, dim)
    return attended.swapaxes(1, 2).astype(queries.dtype)


def precision(dtype) -> jax.lax.Precision | None:
    """Of a product: accelerators would round float32 to bfloat16 or to 19 bits."""
    return jax.lax.Precision.HIGHEST if dtype == jnp.float32 else None


def _block(cache, start, block):
    return jax.lax.dynamic_slice_in_dim(cache, start, block, axis=2)
