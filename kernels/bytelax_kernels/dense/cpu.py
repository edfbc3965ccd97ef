"""`dense` for processors, compiled from `cpu.cc`: a matrix is read once, whatever the rows.

XLA:CPU packs a matrix again for every product of two rows and more, and widens a narrow one in
memory. Here it lies in panels, and is widened in registers.
"""

import contextlib
import dataclasses
import functools
import math
import mmap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bytelax_kernels import native
from bytelax_kernels.dense import panels

COLUMNS = 32  # of a panel
_TILE = 32  # the depth of a narrow matrix is a multiple of it
DTYPES = ("float32", "bfloat16", "int8")
_PAGE = 1 << 21  # bytes of a large page of memory


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Panels(panels.Panels):
    """A matrix in panels of 32 columns; what is beyond the matrix is zero.

    `values` are [P, D, 32] in float32, and [P, D / 2, 32, 2] in bfloat16 and int8, where D is a
    multiple of 32. Each half of a gated matrix begins with a panel.

    Attributes:
      scale: f32[P * 32], what each column is multiplied by; f32[0] for a matrix without scales.
      stands_for: name of the dtype of the kernel that int8 values and their scales stand for.
    """

    scale: Any = None
    stands_for: str | None = dataclasses.field(default=None, metadata={"static": True})

    @classmethod
    def of(
        cls,
        kernel: np.ndarray,
        *,
        contracted: int = 1,
        gated: bool = False,
        scale: np.ndarray | None = None,
        stands_for: str | None = None,
    ) -> "Panels":
        """Lays out a kernel that is on the host.

        Args:
          kernel: the array, in one of `DTYPES`.
          contracted: as in the attributes.
          gated: as in the attributes.
          scale: f32, broadcast over the contracted axes; None for a kernel without scales.
          stands_for: as in the attributes.
        """
        depth = math.prod(kernel.shape[:contracted])
        halves = 1 + gated
        groups = np.reshape(kernel, (depth, halves, -1))
        columns = groups.shape[2]
        padded = -(-columns // COLUMNS) * COLUMNS
        pair = _pair(kernel.dtype)
        deep = depth if pair == 1 else -(-depth // _TILE) * _TILE
        values = _zeros((halves, padded // COLUMNS, deep // pair, COLUMNS, pair), kernel.dtype)
        for half, first in np.ndindex(halves, padded // COLUMNS):
            own = groups[:, half, first * COLUMNS : (first + 1) * COLUMNS]
            for at in range(pair):
                part = own[at::pair]
                values[half, first, : part.shape[0], : part.shape[1], at] = part
        scales = np.zeros((0,), np.float32)
        if scale is not None:
            scales = np.zeros((halves, padded), np.float32)
            scales[:, :columns] = np.reshape(scale, (halves, columns))
        shape = (-1, *values.shape[2:]) if pair > 1 else (-1, deep, COLUMNS)
        return cls(
            values.reshape(shape), kernel.shape, contracted, gated, scales.reshape(-1), stands_for
        )

    def arrays(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The kernel and its scales again, as `of` takes them, on the host."""
        halves = 1 + self.gated
        columns = math.prod(self.features) // halves

        def whole(panels):  # [halves, panels, depth, columns of a panel]
            panels = panels.swapaxes(1, 2).reshape(halves, -1, panels.shape[1] * COLUMNS)
            return panels[..., :columns].swapaxes(0, 1)

        values = np.asarray(self.values)
        if values.ndim == 4:  # pairs
            values = values.swapaxes(2, 3).reshape(values.shape[0], -1, COLUMNS)
        values = values[:, : math.prod(self.shape[: self.contracted])]
        kernel = whole(values.reshape(halves, -1, *values.shape[1:])).reshape(self.shape)
        if not self.scale.size:
            return kernel, None
        scale = whole(np.asarray(self.scale).reshape(halves, -1, 1, COLUMNS))
        return kernel, scale.reshape((1,) * self.contracted + self.features)


def dense(
    rows: Float[Array, "R D"],
    matrix: Panels,
    *,
    scale: Float[Array, " D"] | None = None,
    eps: float = 0.0,
    onto: Float[Array, "R F"] | None = None,
    times: int = 1,
    gated: bool = False,
) -> Float[Array, "R F"]:
    """Computes what `api.dense` does, for any number of rows.

    Sums are in float32, and each runs over the depth in order. So a row has the same bits whatever
    the number of rows.

    Args:
      rows: in float32 or bfloat16, as the result.
      matrix: the matrix.
      scale: of an RMSNorm in front of the product, in float32 or bfloat16; None has no norm.
      eps: added to the mean square in the norm.
      onto: what the product is added to, in the dtype of the rows; None adds nothing.
      times: how many times it is added.
      gated: whether the result is `silu(gate) * other`, of panels that are gated.
    """
    native.instructions()
    count = rows.shape[0]
    halves = 2 if matrix.gated and not gated else 1
    columns = math.prod(matrix.features) // (1 + matrix.gated)
    padded = -(-columns // COLUMNS) * COLUMNS
    width = columns if halves == 1 else halves * padded  # each half ends with its own panel
    if onto is not None and width != columns:
        onto = _padded(onto.reshape(count, halves, columns), padded)
    out = _product(width, np.float32(eps), np.int64(times), gated)(
        rows, matrix.values, matrix.scale, scale, onto
    )
    if width == columns:
        return out
    return out.reshape(count, halves, padded)[..., :columns].reshape(count, -1)


@functools.cache
def _product(width, eps, times, gated):
    """The compiled product; under `jax.vmap`, the rows of all calls are multiplied in one."""

    @jax.custom_batching.custom_vmap
    def product(rows, values, column_scale, scale, onto):
        nothing = jnp.zeros((0,), rows.dtype)
        call = jax.ffi.ffi_call(
            "bytelax_dense", jax.ShapeDtypeStruct((rows.shape[0], width), rows.dtype)
        )
        return call(
            rows, values, column_scale, nothing if scale is None else scale,
            nothing if onto is None else onto, eps=eps, times=times, gated=gated,
        )  # fmt: skip

    @product.def_vmap
    def _(size, batched, rows, *others):
        *matrix, onto = others
        if any(jax.tree.leaves(batched[1:-1])):  # matrices of their own, in turn
            held = jax.tree.map(
                lambda x, one: x if one else jnp.broadcast_to(x, (size, *x.shape)),
                (rows, *others), tuple(batched),
            )  # fmt: skip
            return jax.lax.map(lambda each: product(*each), held), True

        def whole(x, one):
            x = x if one else jnp.broadcast_to(x, (size, *x.shape))
            return x.reshape(-1, x.shape[-1])

        out = product(
            whole(rows, batched[0]), *matrix, None if onto is None else whole(onto, batched[-1])
        )
        return out.reshape(size, -1, width), True

    return product


def _zeros(shape, dtype):
    """Zeros in large pages where they fill any, so that reading them waits less for addresses.

    They begin at a page, so that JAX takes them as they are: arrays elsewhere are copied first.
    """
    count = math.prod(shape)
    size = count * dtype.itemsize
    if size < _PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    memory = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    first = -np.frombuffer(memory, np.uint8).ctypes.data % _PAGE
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE, first, size // _PAGE * _PAGE)
    return np.frombuffer(memory, dtype, count, first).reshape(shape)


def _pair(dtype):
    """How many numbers of a column are adjacent."""
    return 1 if dtype == np.float32 else 2


def _padded(x, size):
    wide = jnp.pad(x, ((0, 0), (0, 0), (0, size - x.shape[-1])))
    return wide.reshape(x.shape[0], -1)
