"""Benchmarks `read_one` and `write` on a GPU against XLA.

They read and write a few KB, so the time of a call is that of its launch, and the lower bound
("floor") is near zero.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax_kernels import timing
from bytelax_kernels.cross_attention.api import read_one, write


class Case(NamedTuple):
    """Sizes of a benchmark; by default of the decoder of the 1B model, one byte."""

    reads: bool = True
    batch: int = 1
    window: int = 1
    heads: int = 16
    slots: int = 129
    vectors: int = 2  # 0: the ring is by head
    dim: int = 64
    dtype: str = "bfloat16"


CASES = {
    "read, a byte": Case(),
    "read, 17 bytes, B 8": Case(batch=8, window=17),
    "write, a patch": Case(False),
    "write, 9 bytes by head": Case(False, window=9, slots=2176, vectors=0),
}


class Inputs(NamedTuple):
    """Arguments of `read_one`, or of `write`, whose keys and values then are in `new`."""

    new: tuple[jax.Array, ...]
    keys: jax.Array
    values: jax.Array
    slots: jax.Array


def example(case: Case, seed: int = 0) -> Inputs:
    """Random rings, and slots that are all different within a row."""
    rng = np.random.default_rng(seed)
    batch, window, heads, slots, vectors, dim = case[1:-1]

    def array(*shape):
        return jnp.asarray(rng.normal(size=(batch, *shape)), case.dtype)

    ring = (slots, vectors, heads, dim) if vectors else (heads, slots, dim)
    entry = (window, vectors, heads, dim) if vectors and not case.reads else (window, heads, dim)
    new = [array(*entry) for _ in range(1 if case.reads else 2)]
    where = [rng.permutation(slots)[:window] for _ in range(batch)]
    return Inputs(tuple(new), array(*ring), array(*ring), jnp.asarray(np.array(where), jnp.int32))


def run(inputs: Inputs, implementation=None) -> tuple[jax.Array, ...]:
    """`read_one`, or `write` where there are keys and values to write."""
    new, keys, values, slots = inputs
    if len(new) == 1:
        return (read_one(new[0], keys, values, slots, implementation=implementation),)
    return write((keys, values), (new[0], new[1]), slots, implementation=implementation)


def times(case: Case, per_second: float) -> dict:
    """Microseconds of the lower bound, the kernel, and XLA.

    `per_second` is the memory bandwidth in bytes per second.
    """
    inputs = example(case)

    def step(inputs, implementation):
        out = run(inputs, implementation)
        if not case.reads:
            return inputs._replace(keys=out[0], values=out[1])
        again = inputs.new[0] + 0 * jnp.nan_to_num(out[0])
        return inputs._replace(new=(again,))

    ways = {
        name: functools.partial(step, implementation=which)
        for name, which in {"kernel": None, "xla": "xla"}.items()
    }
    moved = 4 * case.batch * case.window * max(case.vectors, 1) * case.heads * case.dim
    floor = {"floor_us": round(1e6 * moved * inputs.keys.dtype.itemsize / per_second, 2)}
    return floor | timing.microseconds(ways, inputs, measure=timing.seconds_of_step)
