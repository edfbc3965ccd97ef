"""The least time decoding can take: reading weights and caches, or multiplying, once a pass."""

import concurrent.futures
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax.calculator import Sizes
from bytelax.model import Model


class Machine(NamedTuple):
    """What a device can do at best.

    Attributes:
      bytes_per_second: read from memory.
      flops_per_second: in products of matrices of the weights' dtype.
    """

    bytes_per_second: float
    flops_per_second: float


def measured(dtype: str = "float32", *, megabytes: int = 512, size: int = 2048) -> Machine:
    """What this machine can do, as the best of ten.

    Args:
      dtype: of the products.
      megabytes: of the array that is read, far more than caches hold.
      size: of the square matrices that are multiplied.
    """
    return Machine(_read(megabytes << 20), _multiply(jnp.ones((size, size), dtype)))


def _read(size: int) -> float:
    """Bytes a second."""
    if jax.default_backend() != "cpu":
        array = jnp.ones(size // 4, jnp.float32)
        return size / _best(lambda: _sum(array).block_until_ready())
    # XLA sums on one thread, and not as fast as memory gives.
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = np.array_split(np.ones(size // 4, np.float32), threads or 1)
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return size / _best(lambda: list(pool.map(np.max, parts)))


_sum = jax.jit(jnp.sum)
_product = jax.jit(jnp.matmul)


def _multiply(matrix: jax.Array) -> float:
    """Floating-point operations a second."""
    seconds = _best(lambda: _product(matrix, matrix).block_until_ready())
    return 2 * len(matrix) ** 3 / seconds


def _best(run: Callable[[], object], times: int = 10) -> float:
    run()
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def weights(model: Model) -> Sizes:
    """Weights that a pass of each network reads; of embedding tables rows are looked up.

    What a BLT runs only where a patch closes counts as the global transformer's: pooling, and the
    keys and values that the decoder reads of a patch.
    """
    return model.module.weights_per_pass(model.params, by_pass=True)


def caches(model: Model, context: int, *, bytes_per_patch: float | None = None) -> Sizes:
    """Keys and values that a pass of each network looks at in one row.

    Args:
      context: bytes of the text.
      bytes_per_patch: of a BLT's text.
    """

    return model.module.cached_per_pass(context, bytes_per_patch=bytes_per_patch)


def seconds(
    machine: Machine,
    weights: float,
    cached: float,
    *,
    passes: float,
    rows: float,
    width: float = 1,
    itemsize: int = 4,
) -> float:
    """Least seconds of so many passes of one network, each over a batch.

    A pass reads the weights once and each row's cache, or multiplies each weight with each byte,
    whichever takes longer.

    Args:
      weights: numbers of the network.
      cached: numbers of one row's keys and values.
      passes: that the batch makes.
      rows: of the batch.
      width: bytes, or patches, of each row in a pass.
      itemsize: bytes of a number.
    """
    reading = itemsize * (weights + rows * cached) / machine.bytes_per_second
    multiplying = 2 * weights * rows * width / machine.flops_per_second
    return passes * max(reading, multiplying)
