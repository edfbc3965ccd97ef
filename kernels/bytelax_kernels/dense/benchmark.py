"""Benchmarks `dense` on a GPU against its lower bound and XLA.

The lower bound ("floor") of a call is the time to read the matrix, at the bandwidth of a plain
copy. Calls go through several matrices in turn, more than the chip's own cache holds.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax_kernels import timing
from bytelax_kernels.dense import reference
from bytelax_kernels.dense.gpu import Panels, dense

TURNED = 192 << 20  # bytes of the matrices that are read in turn; the L2 of an H200 holds 50 MiB


class Case(NamedTuple):
    """A product of the 1B model's decoder, by default its queries for one byte."""

    rows: int = 1
    dim: int = 1024
    columns: int = 1024
    scaled: bool = True
    gated: bool = False
    onto: bool = False
    dtype: str = "bfloat16"


CASES = {
    "query, a row": Case(),
    "qkv, a row": Case(columns=3072),
    "qkv, 9 rows": Case(9, columns=3072),
    "gate and up, a row": Case(columns=5632, gated=True),
    "gate and up, 9 rows": Case(9, columns=5632, gated=True),
    "down, a row": Case(dim=2816, scaled=False, onto=True),
    "down, 17 rows": Case(17, dim=2816, scaled=False, onto=True),
    "qkv of the patcher, a row": Case(dim=768, columns=2304, dtype="float32"),
}


class Operands(NamedTuple):
    """What is multiplied: the matrix as it is, and as the kernel reads it."""

    rows: jax.Array
    matrix: jax.Array
    panels: Panels
    scale: jax.Array | None
    onto: jax.Array | None


def example(case: Case, seed: int = 0) -> tuple[Operands, dict]:
    """Random operands, and the options of `dense`."""
    rng = np.random.default_rng(seed)

    def array(*shape):
        return jnp.asarray(rng.normal(size=shape), case.dtype)

    width = case.columns // (2 if case.gated else 1)
    matrix = array(case.dim, case.columns) / case.dim**0.5
    operands = Operands(
        rows=array(case.rows, case.dim),
        matrix=matrix,
        panels=in_panels(matrix, gated=case.gated),
        scale=array(case.dim) if case.scaled else None,
        onto=array(case.rows, width) if case.onto else None,
    )
    exact = jax.lax.Precision.HIGHEST if case.dtype == "float32" else None
    return operands, {"eps": 1e-5, "gated": case.gated, "precision": exact}


def in_panels(matrix: jax.Array, *, gated: bool) -> Panels:
    """The matrix as the kernel reads it."""
    shape = (-1, 2, matrix.shape[1] // 2) if gated else matrix.shape
    return Panels.of(matrix.reshape(shape), gated=gated)


def multiply(operands: Operands, options: dict, implementation: str = "gpu") -> jax.Array:
    """The product by the kernel, or by "xla"."""
    rows, matrix, panels, scale, onto = operands
    if implementation == "xla":
        return reference.dense(rows, matrix, scale=scale, onto=onto, **options)
    return dense(rows, panels, scale=scale, onto=onto, **options)


def times(case: Case, per_second: float) -> dict:
    """Microseconds of the lower bound, the kernel and XLA.

    `per_second` is the memory bandwidth in bytes per second.
    """
    operands, options = example(case)
    calls = -(-TURNED // operands.matrix.nbytes)
    matrices = [jnp.roll(operands.matrix, n, axis=1) for n in range(calls)]

    def in_turn(rows, turn, implementation):
        name = "matrix" if implementation == "xla" else "panels"
        for each in turn[name]:
            out = multiply(operands._replace(rows=rows, **{name: each}), options, implementation)
            rows = rows + 0 * jnp.nan_to_num(out[:, :1])
        return rows

    turn = {"matrix": matrices, "panels": [in_panels(x, gated=case.gated) for x in matrices]}
    ways = {
        name: functools.partial(in_turn, implementation=which)
        for name, which in {"kernel": "gpu", "xla": "xla"}.items()
    }
    floor = {"floor_us": round(1e6 * operands.matrix.nbytes / per_second, 2)}
    return floor | timing.microseconds(ways, operands.rows, turn, calls=calls)
