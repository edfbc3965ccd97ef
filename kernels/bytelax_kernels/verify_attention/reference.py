"""jnp implementations of `verify_attention`: the oracle for the kernels, and the CPU path."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax_kernels.dispatch import rows_alike
from bytelax_kernels.verify_attention.inputs import (
    Inputs,
    by_key_head,
    by_query,
    heads_apart,
    precision,
)
from bytelax_kernels.verify_attention.sight import positions, reach, visible

# The running maximum starts here rather than at -inf. A block to which a query does not attend then
# rescales by exp(0) and adds zeros, so skipping and computing it give the same bits.
FLOOR = -1e30


def dense(inputs: Inputs, *, apart: bool = False) -> Float[Array, "B W H D"]:
    """Scores every slot and masks those that a query does not attend to.

    Args:
      inputs: the inputs.
      apart: keep rows and heads as separate axes, which can be sharded over two axes of a mesh.
    """
    inputs = heads_apart(inputs)
    position = positions(inputs.sight.newest, inputs.sizes.slots)
    scores = _scores(inputs, inputs.keys, position, apart=apart)
    top = jnp.maximum(scores.max(-1, keepdims=True), FLOOR)
    weights = jnp.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    weights = weights / jnp.where(total > 0, total, 1)
    return by_query(_weighted(weights, inputs.values, apart=apart), inputs)


def blocked(inputs: Inputs, block: int) -> Float[Array, "B W H D"]:
    """Online softmax over those blocks of slots to which some query of the batch attends."""
    inputs = heads_apart(inputs)
    sizes = inputs.sizes
    slots = sizes.slots
    block = min(block, slots)
    lowest, highest = reach(inputs.sight)
    begin, end = lowest.min() // block, highest.max() // block

    def attend(carry):
        index, top, total, heads_sum = carry
        # The last block may overlap the one before; `position` masks slots that were scored there.
        start = jnp.minimum(index * block, slots - block)
        position = start + jnp.arange(block)
        position = jnp.where(position >= index * block, position, -1)[None]
        scores = _scores(inputs, _block(inputs.keys, start, block), position)
        new_top = jnp.maximum(top, scores.max(-1, keepdims=True))
        weights = jnp.exp(scores - new_top)
        scale = jnp.exp(top - new_top)
        total = total * scale + weights.sum(-1, keepdims=True)
        heads_sum = heads_sum * scale + _weighted(weights, _block(inputs.values, start, block))
        return index + 1, new_top, total, heads_sum

    shape = (sizes.batch, sizes.kv_heads, sizes.rows)
    carry = (
        begin,
        jnp.full((*shape, 1), FLOOR, jnp.float32),
        jnp.zeros((*shape, 1), jnp.float32),
        jnp.zeros((*shape, sizes.dim), jnp.float32),
    )
    _, _, total, heads_sum = jax.lax.while_loop(lambda c: c[0] <= end, attend, carry)
    return by_query(heads_sum / jnp.where(total > 0, total, 1), inputs)


def _scores(inputs, keys, position, *, apart=False):
    """Scores f32[B, K, G W, S], -inf where a query does not attend to the slot's position."""
    batch, kv_heads, slots, dim = keys.shape
    rows, group = inputs.sizes.rows, inputs.sizes.group
    # Rows and heads are one batch axis of the matmul, as in the updates of bytelax's KV caches;
    # XLA on CPU would otherwise copy the cache.
    both = (batch, kv_heads) if apart else (batch * kv_heads,)
    scores = jnp.einsum(
        "...qd,...sd->...qs",
        _alike(by_key_head(inputs).reshape(*both, rows, dim)),
        keys.reshape(*both, slots, dim),
        precision=precision(keys.dtype),
        preferred_element_type=jnp.float32,
    )[..., :rows, :].reshape(batch, kv_heads, rows, slots)
    seen = jnp.tile(visible(inputs.sight, position), (1, group, 1))[:, None]
    return jnp.where(seen, scores * dim**-0.5, -jnp.inf)


def _weighted(weights, values, *, apart=False):
    """The sums of values weighted by attention, f32[B, K, G W, D]."""
    batch, kv_heads, slots, dim = values.shape
    rows = weights.shape[2]
    both = (batch, kv_heads) if apart else (batch * kv_heads,)
    return jnp.einsum(
        "...qs,...sd->...qd",
        _alike(weights.astype(values.dtype).reshape(*both, rows, slots)),
        values.reshape(*both, slots, dim),
        precision=precision(values.dtype),
        preferred_element_type=jnp.float32,
    )[..., :rows, :].reshape(batch, kv_heads, rows, dim)


def _alike(queries):
    """The factor with as many rows as its product needs to sum each of them alike."""
    rows = queries.shape[-2]
    return jnp.pad(queries, ((0, 0),) * (queries.ndim - 2) + ((0, rows_alike(rows) - rows), (0, 0)))


def _block(cache, start, block):
    return jax.lax.dynamic_slice_in_dim(cache, start, block, axis=2)
