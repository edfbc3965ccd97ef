"""Benchmarks `append_attention` on a GPU against its lower bound and its two steps.

The lower bound ("floor") of a call is the time to read the keys and values that its queries attend
to, at the bandwidth of a plain copy. Calls go through several caches in turn, more than the chip's
own cache holds, and change them in place.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax_kernels import timing
from bytelax_kernels.append_attention.api import append_attention
from bytelax_kernels.append_attention.inputs import Inputs, Projections
from bytelax_kernels.append_attention.rotary import frequencies
from bytelax_kernels.verify_attention.sight import Sight

TURNED = 192 << 20  # bytes of the caches that are read in turn; the L2 of an H200 holds 50 MiB
_MOST = 96  # calls in one program


class Case(NamedTuple):
    """Sizes of a benchmark; by default a local stack of the 1B model, one byte."""

    batch: int = 1
    window: int = 1
    heads: int = 16
    kv_heads: int = 16
    slots: int = 528
    dim: int = 64
    length: int = 4000  # of the texts
    dtype: str = "bfloat16"


CASES = {
    "local, a byte": Case(),
    "local, 9 bytes": Case(window=9),
    "local, 9 bytes, B 8": Case(8, 9),
    "patcher, a byte": Case(heads=12, kv_heads=12, dtype="float32"),
    "global, 450 of 2176": Case(slots=2176, dim=128, length=450),
    "grouped, 4 bytes": Case(window=4, heads=32, kv_heads=8, slots=8192, dim=128, length=8180),
}


def example(case: Case, seed: int = 0) -> Inputs:
    """A random window at the end of texts, causal within the slots."""
    rng = np.random.default_rng(seed)
    batch, window, heads, kv_heads, slots, dim, length, dtype = case

    def array(*shape):
        return jnp.asarray(rng.normal(size=(batch, *shape)), dtype)

    newest = jnp.full(batch, length - 1, jnp.int32)
    own = newest[:, None] - window + 1 + jnp.arange(window)
    sight = Sight(jnp.maximum(own - (slots - window), 0), own, newest)
    qkv = array(window, kv_heads, heads // kv_heads + 2, dim)
    projections = Projections(qkv, own, frequencies(dim, 1e4))
    cache = kv_heads, slots, dim
    return Inputs(projections, array(*cache), array(*cache), own, sight)


def attend(inputs: Inputs, implementation=None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`append_attention` as a function of `Inputs`."""
    projections, keys, values, positions, sight = inputs
    return append_attention(
        projections, keys, values,
        positions=positions, **sight._asdict(), implementation=implementation,
    )  # fmt: skip


def times(case: Case, per_second: float) -> dict:
    """Microseconds of the lower bound, the kernel, and the two steps.

    `per_second` is the memory bandwidth in bytes per second.
    """
    inputs = example(case)
    calls = min(_MOST, -(-TURNED // (2 * inputs.keys.nbytes)))
    caches = [(inputs.keys + n, inputs.values + n) for n in range(calls)]

    def in_turn(carry, implementation):
        """Each call waits for the one before, and its cache is carried to the next turn."""
        (qkv, *others), caches = carry
        written = []
        for keys, values in caches:
            each = inputs._replace(projections=Projections(qkv, *others), keys=keys, values=values)
            out, *cache = attend(each, implementation)
            written.append(tuple(cache))
            qkv = qkv + 0 * jnp.nan_to_num(out[:, :, :1, None]).astype(qkv.dtype)
        return Projections(qkv, *others), written

    ways = {
        name: functools.partial(in_turn, implementation=which)
        for name, which in {"kernel": None, "xla": "xla"}.items()
    }
    seen = int((inputs.sight.last - inputs.sight.first).max()) + case.window
    read = 2 * case.batch * case.kv_heads * case.dim * seen * inputs.keys.dtype.itemsize
    floor = {"floor_us": round(1e6 * read / per_second, 2)}
    return floor | timing.microseconds(
        ways, (inputs.projections, caches), calls=calls, measure=timing.seconds_of_step
    )
