"""`write` and `read_one` for NVIDIA GPUs, compiled from `gpu.cu`: one small kernel each."""

import jax
import jax.numpy as jnp

_VECTORS, _DIM, _WINDOW = 8, 128, 32  # vectors in a slot, numbers of a head, queries of a row


def takes_write(inputs: tuple) -> bool:
    """Whether the kernel supports these shapes, in one dtype."""
    keys, values, new_keys, new_values, _ = inputs
    dtypes = {x.dtype for x in (keys, values, new_keys, new_values)}
    return _known(dtypes) and keys.shape[-1] * keys.dtype.itemsize % 16 == 0


def write(inputs: tuple) -> tuple[jax.Array, jax.Array]:
    """Computes `reference.write` for inputs that `takes_write` accepts."""
    keys, values, *new, slots = inputs
    by_head = keys.ndim == 4
    # The two come from one product, and XLA compiles this to that product alone.
    pairs = jnp.stack(new, axis=-3)
    if by_head:
        pairs = pairs[:, :, None]
    call = jax.ffi.ffi_call(
        "bytelax_cross_write_gpu",
        (jax.typeof(keys), jax.typeof(values)),
        input_output_aliases={2: 0, 3: 1},
    )
    keys, values = call(pairs, slots.astype(jnp.int32), keys, values, by_head=by_head)
    return keys, values


def takes_read_one(inputs: tuple) -> bool:
    """Whether the kernel supports these shapes, in one dtype, as those of decoding."""
    queries, keys, values, _ = inputs
    _, _, vectors, _, dim = keys.shape
    small = vectors <= _VECTORS and dim <= _DIM and queries.shape[1] <= _WINDOW
    return small and _known({x.dtype for x in (queries, keys, values)})


def read_one(inputs: tuple) -> jax.Array:
    """Computes `reference.read_one` for inputs that `takes_read_one` accepts."""
    queries, keys, values, slots = inputs
    call = jax.ffi.ffi_call("bytelax_cross_read_gpu", jax.typeof(queries))
    return call(queries, slots.astype(jnp.int32), keys, values)


def _known(dtypes):
    return len(dtypes) == 1 and dtypes <= {jnp.dtype("bfloat16"), jnp.dtype("float32")}
