"""A lower bound on decoding time: the memory traffic or the arithmetic of every pass (roofline)."""

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
from bytelax.models import layers
from bytelax.models.byte_lm import ByteLM
from bytelax.models.configs import ByteLMConfig, TransformerConfig

_KEYS = ("key_value", "key_norm")  # parameters for the keys and values of a cross-attention


class Machine(NamedTuple):
    """Peak performance of a device.

    Attributes:
      bytes_per_second: memory bandwidth for reading.
      flops_per_second: floating-point operations per second in matrix products of the weights'
        dtype.
    """

    bytes_per_second: float
    flops_per_second: float


def measured(dtype: str = "float32", *, megabytes: int = 512, size: int = 2048) -> Machine:
    """Measures the peak performance of this machine, as the best of ten runs.

    Args:
      dtype: dtype of the matrix products.
      megabytes: size of the array that is read, in MiB; far more than the caches hold.
      size: rows and columns of the square matrices that are multiplied.
    """
    return Machine(_read(megabytes << 20), _multiply(jnp.ones((size, size), dtype)))


def _read(size: int) -> float:
    """Returns the bytes read per second."""
    if jax.default_backend() != "cpu":
        array = jnp.ones(size // 4, jnp.float32)
        return size / _best(lambda: _sum(array).block_until_ready())
    # On CPU, XLA sums on one thread, which does not reach the memory bandwidth.
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parts = np.array_split(np.ones(size // 4, np.float32), threads or 1)
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        return size / _best(lambda: list(pool.map(np.max, parts)))


_sum = jax.jit(jnp.sum)
_product = jax.jit(jnp.matmul)


def _multiply(matrix: jax.Array) -> float:
    """Returns the floating-point operations per second."""
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
    """Returns the number of weights that a pass of each network reads, without embedding tables.

    Whatever a BLT computes only when a patch closes counts as the global transformer's: pooling,
    and the keys and values of a patch for the decoder's cross-attention.
    """
    params = model.held
    size = model.module.weights_per_pass(params)
    if isinstance(model.module, ByteLM):
        return size
    encoder = params["encoder"]
    pools = {name: part for name, part in encoder["cross"].items() if name not in _KEYS}
    of_encoder = layers.weights([encoder["split"], pools])
    decoder = params["decoder"]
    crosses = [part for name, part in decoder.items() if name.startswith("cross_")]
    keys = [part[name] for part in crosses for name in _KEYS]
    of_decoder = layers.weights([decoder["split"], keys])
    return size._replace(
        encoder=size.encoder - of_encoder,
        decoder=size.decoder - of_decoder,
        global_=size.global_ + of_encoder + of_decoder,
    )


def caches(model: Model, context: int, *, bytes_per_patch: float | None = None) -> Sizes:
    """Returns how many cached keys and values a pass of each network reads in one row.

    Args:
      model: the model.
      context: length of the text in bytes.
      bytes_per_patch: mean patch length of the text, for a BLT.
    """
    config = model.config
    if isinstance(config, ByteLMConfig):
        return Sizes(decoder=_cached(config.trunk, context), encoder=0, global_=0)
    assert bytes_per_patch is not None
    return Sizes(
        decoder=_cached(config.decoder, context),
        encoder=_cached(config.encoder, context),
        global_=_cached(config.global_transformer, context / bytes_per_patch),
        patcher=_cached(config.patcher.trunk, context) if config.patcher else 0,
    )


def _cached(config: TransformerConfig, positions: float) -> float:
    """How many numbers of its key-value caches a pass of a stack reads."""
    seen = min(positions, config.window or positions)
    return 2 * config.layers * config.kv_heads * config.head_dim * seen


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
    """Returns a lower bound on the time of `passes` forward passes of one network over a batch.

    A pass either reads the weights once and the cache of each row, or multiplies each weight with
    each byte, whichever takes longer.

    Args:
      machine: peak performance of the device.
      weights: number of weights of the network.
      cached: number of cached keys and values of one row.
      passes: number of passes that the batch makes.
      rows: number of rows of the batch.
      width: bytes or patches per row in one pass.
      itemsize: bytes per number.
    """
    reading = itemsize * (weights + rows * cached) / machine.bytes_per_second
    multiplying = 2 * weights * rows * width / machine.flops_per_second
    return passes * max(reading, multiplying)
