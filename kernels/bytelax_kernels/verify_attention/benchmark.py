"""Benchmarks `verify_attention` on an accelerator against its lower bound, XLA and cuDNN.

The lower bound ("floor") of a call is the time to read the keys and values that its queries attend
to, at the bandwidth of a plain copy. Calls go through several caches in turn, more than the chip's
own cache holds, as the layers of a model do.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax_kernels import dispatch, timing
from bytelax_kernels.verify_attention.api import verify_attention
from bytelax_kernels.verify_attention.inputs import Inputs, heads_in_lines
from bytelax_kernels.verify_attention.sight import Sight, positions, visible

TURNED = 192 << 20  # bytes of the caches that are read in turn; the L2 of an H200 holds 50 MiB
_MOST = 96  # calls in one program


class Case(NamedTuple):
    """Sizes of a benchmark; by default a local stack of the 1B model verifying 8 drafted bytes."""

    batch: int = 8
    window: int = 9
    heads: int = 16
    kv_heads: int = 16
    slots: int = 528
    dim: int = 64
    length: int = 4000  # approximate length of the texts
    tree: bool = False


_GLOBAL = Case(slots=4128, dim=128)
CASES = {
    "local, B 1": Case(batch=1),
    "local, B 8": Case(),
    "local, B 64": Case(batch=64),
    "global, B 1, 450 of 4128": _GLOBAL._replace(batch=1, length=450),
    "global, B 8, 450 of 4128": _GLOBAL._replace(length=450),
    "global, B 8, 1800 of 4128": _GLOBAL._replace(length=1800),
    "global, B 64, 1800 of 4128": _GLOBAL._replace(batch=64, length=1800),
    "bytes, B 1, 8192": Case(batch=1, slots=8192, length=8180),
    "bytes, B 8, 8192": Case(slots=8192, length=8180),
    "grouped, B 8, 8192": Case(window=8, heads=32, kv_heads=8, slots=8192, dim=128, length=8180),
    "tree, B 8": Case(window=32, slots=4128),
}


def example(case: Case, seed: int = 0) -> Inputs:
    """Random bfloat16 inputs with queries at the ends of texts, and peaked attention.

    Caches are in lines on TPUs, and by head elsewhere: the layout that the kernel reads.
    """
    rng = np.random.default_rng(seed)
    batch, window, heads, kv_heads, slots, dim, length, tree = case
    shapes = [(batch, window, heads, dim), *[(batch, kv_heads, slots, dim)] * 2]
    queries, keys, values = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    newest = jnp.asarray(length - 1 - rng.integers(0, 50, batch), jnp.int32)
    own = newest[:, None] - window + 1 + jnp.arange(window)
    first = jnp.maximum(own - (slots - window), 0)
    last, ancestors = own, None
    if tree:
        last = jnp.repeat(newest[:, None] - window, window, axis=1)
        flags = np.tril(rng.random((batch, window, window)) < 0.3) | np.eye(window, dtype=bool)
        ancestors = jnp.asarray(flags)
    inputs = Inputs(3 * queries, keys, values, Sight(first, last, newest, ancestors))
    return heads_in_lines(inputs) if dispatch.platform() == "tpu" else inputs


def attend(queries, keys, values, sight, implementation=None):
    """`verify_attention` as a function of the fields of `Inputs`."""
    return verify_attention(queries, keys, values, **sight._asdict(), implementation=implementation)


def read_bytes(inputs: Inputs) -> int:
    """Number of bytes of the keys and values to which some query attends."""
    sizes = inputs.sizes
    seen = visible(inputs.sight, positions(inputs.sight.newest, sizes.slots)).any(1)
    line = sizes.kv_heads * sizes.dim * inputs.keys.dtype.itemsize
    return int(seen.sum()) * 2 * line


def times(case: Case, per_second: float) -> dict:
    """Microseconds of the lower bound and of every implementation.

    `per_second` is the memory bandwidth in bytes per second.
    """
    names = {"kernel": None, "xla": "xla"}
    if jax.default_backend() == "gpu":
        names["cudnn"] = "cudnn"
    queries, keys, values, sight = inputs = example(case)
    calls = min(_MOST, -(-TURNED // (2 * keys.nbytes)))
    caches = [tuple(jnp.roll(part, n, axis=-2) for part in (keys, values)) for n in range(calls)]
    ways = {name: functools.partial(in_turn, implementation=which) for name, which in names.items()}
    floor = {"floor_us": round(1e6 * read_bytes(inputs) / per_second, 2)}
    return floor | timing.microseconds(ways, queries, caches, sight, calls=calls)


def in_turn(queries, caches, sight, implementation):
    """Attends to each of several caches; each call waits for the one before."""
    for keys, values in caches:
        out = attend(queries, keys, values, sight, implementation)
        queries = queries + 0 * jnp.nan_to_num(out).astype(queries.dtype)
    return queries
