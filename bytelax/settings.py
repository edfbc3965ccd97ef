"""Settings of JAX: the programs of this library depend on none that the caller has made."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
from jaxtyping import Array, Key


@contextlib.contextmanager
def own_settings() -> Iterator[None]:
    """Traces programs in types of 32 bits and with JAX's default rules of promotion.

    A context manager and a decorator. Whatever runs within is the same program with
    `jax_enable_x64`, with `jax_numpy_dtype_promotion="strict"` and with
    `jax_numpy_rank_promotion="raise"`, in the caller's own `jax.jit` too. These settings hold
    again behind it.
    """
    with (
        jax.enable_x64(False),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        yield


def random_key(seed: Any) -> Key[Array, ""]:
    """Creates a key of Threefry, whatever `jax_default_prng_impl` says.

    Under `jax.vmap` the generator "rbg", which is usual on TPUs, draws the numbers of all rows from
    the first row's key.

    Args:
      seed: a number of 0..2**32 - 1, or a scalar array of it.
    """
    return jax.random.key(seed, impl="threefry2x32")
