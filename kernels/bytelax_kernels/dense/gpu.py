"""`dense` for NVIDIA GPUs, compiled from `gpu.cu`: up to 32 rows, which read the matrix once.

With few rows reading the matrix is what a product costs. XLA needs two to four operations for it;
it computes what the kernel does not take, from the panels made into a matrix again.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bytelax_kernels import cuda
from bytelax_kernels.dense import panels, reference
from bytelax_kernels.dispatch import by_platform

COLUMNS = 8  # of a panel
CHUNKS = {"bfloat16": 32, "float32": 16}  # adjacent numbers of a column
_ROWS = 32
_SHARED = 227 * 2**10  # bytes of shared memory that a thread block may use
_AHEAD = 8 * 2**13  # bytes of it for what is copied ahead
_WARPS = 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Panels(panels.Panels):
    """A matrix in panels of 8 columns; columns beyond the matrix are zero.

    `values` are [N / 8, D / C, 8, C] with the C of `CHUNKS`. In a gated matrix a gate and what it
    gates are neighbours.
    """

    @staticmethod
    def hold(shape: tuple[int, ...], dtype: jnp.dtype, contracted: int) -> bool:
        """Whether a kernel fits into panels: its depth has to be in whole chunks."""
        chunk = CHUNKS.get(jnp.dtype(dtype).name)
        return chunk is not None and math.prod(shape[:contracted]) % chunk == 0

    @classmethod
    def of(
        cls, kernel: Float[Array, "..."], *, contracted: int = 1, gated: bool = False
    ) -> "Panels":
        """Lays out a kernel."""
        depth, chunk = math.prod(kernel.shape[:contracted]), CHUNKS[kernel.dtype.name]
        matrix = kernel.reshape(depth, -1)
        if gated:
            matrix = matrix.reshape(depth, 2, -1).swapaxes(1, 2).reshape(depth, -1)
        matrix = jnp.pad(matrix, ((0, 0), (0, -matrix.shape[1] % COLUMNS)))
        values = matrix.reshape(depth // chunk, chunk, -1, COLUMNS).transpose(2, 0, 3, 1)
        return cls(values, kernel.shape, contracted, gated)

    def matrix(self) -> Float[Array, "D N"]:
        """The kernel again, as a matrix."""
        depth, columns = math.prod(self.shape[: self.contracted]), math.prod(self.features)
        matrix = self.values.transpose(1, 3, 0, 2).reshape(depth, -1)[:, :columns]
        if self.gated:
            matrix = matrix.reshape(depth, -1, 2).swapaxes(1, 2).reshape(depth, -1)
        return matrix

    def arrays(self) -> tuple[Float[Array, "..."], None]:
        """The kernel again, and None for its scales."""
        return self.matrix().reshape(self.shape), None


def takes(rows: Float[Array, "R D"], matrix: Panels, *others: Array | None) -> bool:
    """Whether the kernel multiplies these rows, in one dtype with everything."""
    dtypes = {x.dtype for x in (rows, matrix, *others) if x is not None}
    count, depth = rows.shape
    return (
        cuda.why_not() is None
        and 0 < count <= _ROWS
        and len(dtypes) == 1
        and shared_bytes(count, depth, matrix) <= _SHARED
    )


def shared_bytes(count: int, depth: int, matrix: Panels) -> int:
    """Bytes of shared memory that the kernel needs for one panel, as it counts them."""
    size, chunk = matrix.dtype.itemsize, CHUNKS[matrix.dtype.name]
    rows = count * ((depth + chunk) * size + 16) + depth * size
    return _AHEAD + rows + count * COLUMNS * (size + _WARPS * 4)


def dense(
    rows: Float[Array, "R D"],
    matrix: Panels,
    *,
    scale: Float[Array, " D"] | None = None,
    eps: float = 0.0,
    onto: Float[Array, "R F"] | None = None,
    times: int = 1,
    gated: bool = False,
    precision: jax.lax.Precision | None = None,
) -> Float[Array, "R F"]:
    """Computes `api.dense`; its arguments."""
    how: dict[str, Any] = {"eps": eps, "times": times, "gated": gated}

    def by_xla(operands):
        rows, values, scale, onto = operands
        whole = dataclasses.replace(matrix, values=values).matrix()
        around = {"scale": scale, "onto": onto, "precision": precision}
        return reference.dense(rows, whole, **around, **how)

    operands = rows, matrix.values, scale, onto
    if gated != matrix.gated or not takes(rows, matrix, scale, onto):
        return by_xla(operands)
    columns = math.prod(matrix.features) // (1 + gated)
    kernel = functools.partial(_multiply, columns=columns, **how)
    return by_platform(by_xla, {"gpu": kernel}, known="gpu")(operands)


def _multiply(operands, *, columns, eps, times, gated):
    rows, values, *others = operands
    nothing = jnp.zeros((0,), rows.dtype)
    call = jax.ffi.ffi_call(
        "bytelax_dense_gpu", jax.ShapeDtypeStruct((rows.shape[0], columns), rows.dtype)
    )
    return call(
        rows, values, *(nothing if x is None else x for x in others),
        eps=np.float32(eps), times=np.int64(times), gated=gated,
    )  # fmt: skip
