"""Weights that are stored in fewer bits than they are computed with: int8, and bfloat16 on a CPU.

XLA:CPU computes products in float32. Given a narrower matrix, it widens all of it, and in a
loop that decodes it keeps the float32 copies of all matrices for as long as the loop runs. So a
large narrow matrix is multiplied here in blocks of rows, each widened just before it is used,
within a core's cache. Accelerators widen in registers, and get an ordinary product.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from bytelax_kernels import dispatch
from jaxtyping import Array, Float, Int, Shaped, UInt16

from bytelax.models.pytree import keys

ONE_DEVICE = "int8 weights decode on one device: use a mesh or int8, not both"
_CACHE = 3 << 19  # bytes of a widened block: 1.5 MB, so that it stays in a core's cache
_FEW = 32  # rows of the other factor, up to which reading the matrix is what a product costs
_HOST = 1 << 20  # bytes of float32 that quantization holds at a time, within a cache


@flax.struct.dataclass
class Int8:
    """An array stored as int8 with float32 scales: `values * scale`.

    Attributes:
      values: i8[...], of -127 to 127.
      scale: f32, with the axes of `values`, of size 1 where values share a scale.
      dtype: name of the dtype of the array that it stands for.
    """

    values: Any
    scale: Any
    dtype: str = flax.struct.field(pytree_node=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return self.values.shape

    @classmethod
    def of(cls, x: np.ndarray, axes: Sequence[int], *, dtype: Any = None) -> "Int8":
        """Quantizes an array of the host, rounding to the nearest multiple of each scale.

        The values are those of `qwix.quantize`: a scale is the largest magnitude over 127.5, which
        becomes 127, so that nothing is off by more than half a step.

        Args:
          x: the array.
          axes: axes along which values share a scale: the contracted axes of a kernel.
          dtype: dtype of the array that the result stands for; by default that of `x`.
        """
        x = np.asarray(x)
        step = max(1, _HOST // (4 * math.prod(x.shape[1:])))
        blocks = [slice(at, at + step) for at in range(0, x.shape[0], step)]
        largest = [_largest(x[rows].astype(np.float32), tuple(axes)) for rows in blocks]
        whole = [functools.reduce(np.maximum, largest)] if 0 in axes else largest
        scale = np.concatenate(whole) / np.float32(127.5)
        scale[scale == 0] = 1
        values = np.empty(x.shape, np.int8)
        with np.errstate(invalid="ignore"):  # the scale of a channel that is not finite says so
            for rows in blocks:
                nearest = x[rows] / (scale if 0 in axes else scale[rows])
                values[rows] = np.clip(np.rint(nearest, out=nearest), -127, 127, out=nearest)
        return cls(values, scale, jnp.dtype(dtype or x.dtype).name)


def _largest(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return np.maximum(x.max(axes, keepdims=True), -x.min(axes, keepdims=True))


def is_int8(x: Any) -> bool:
    """Whether a node of a tree of parameters is an `Int8`, as `is_leaf` of `jax.tree` takes it."""
    return isinstance(x, Int8)


def is_narrow(x: Any) -> bool:
    """Whether an array is stored in another way: as an `Int8`, or as the bits from `as_bits`."""
    return is_int8(x) or x.dtype == jnp.uint16


def has_int8(params: Any) -> bool:
    """Whether a tree of parameters holds an `Int8`."""
    return any(map(is_int8, jax.tree.leaves(params, is_leaf=is_int8)))


def as_bits(x: Array) -> Array:
    """Views a bfloat16 array on a CPU as uint16, without a copy; others are unchanged.

    Integers are widened where they are used, unlike bfloat16; see the head of this module.
    """
    if x.dtype != jnp.bfloat16 or [device.platform for device in x.devices()] != ["cpu"]:
        return x
    return jax.device_put(np.asarray(x).view(np.uint16), x.device, may_alias=True)


def params_as_bits(params: Any) -> Any:
    """Views the bfloat16 tables and large kernels of a model on a CPU as uint16; see `as_bits`.

    XLA:CPU has no gather and no product in bfloat16: it converts a whole table or kernel to float32
    first, and keeps the copy for as long as the program runs. A hash table of 6 GB would take 12 GB
    more, and kernels of 3 GB another 6.

    Args:
      params: parameters of a model. Other arrays, and arrays on several devices, are unchanged.
    """

    def view(path, x):
        name = keys(path)[-1]
        large = name == "kernel" and 4 * x.size > _CACHE
        return as_bits(x) if name == "embedding" or large else x

    return jax.tree_util.tree_map_with_path(view, params)


def from_bits(params: Any) -> Any:
    """The parameters that `params_as_bits` has viewed, again without a copy."""

    def view(x):
        if x.dtype != jnp.uint16:
            return x
        return jax.device_put(np.asarray(x).view(jnp.bfloat16), x.device, may_alias=True)

    return jax.tree.map(view, params)


def blocks(rows: int, inputs: int, outputs: int) -> int:
    """Number of blocks in which `[rows, inputs] @ [inputs, outputs]` widens a narrow matrix.

    1 stands for a matrix that is small enough to be widened as a whole.
    """
    held = _CACHE if rows <= _FEW else 4 * _CACHE
    return min(inputs, -(-4 * inputs * outputs // held))


def rows_of(
    table: Float[Array, "R D"] | UInt16[Array, "R D"] | Int8, ids: Int[Array, "*B"]
) -> Float[Array, "*B D"]:
    """Looks up rows of a table, in the dtype of the array that it stands for."""
    if isinstance(table, Int8):
        return (table.values[ids] * table.scale[ids]).astype(table.dtype)
    if table.dtype == jnp.uint16:
        return jax.lax.bitcast_convert_type(table[ids], jnp.bfloat16)
    return table[ids]


def product(
    x: Float[Array, "..."],
    kernel: Shaped[Array, "..."] | Int8,
    contracted: int = 1,
    *,
    precision: jax.lax.Precision | None = None,
) -> Float[Array, "..."]:
    """Multiplies by a narrow kernel; sums are in float32, and the result has the dtype of `x`.

    Args:
      x: the left factor.
      kernel: an `Int8` with one scale for each output, or bfloat16 as bits from `as_bits`.
      contracted: number of axes of `x` that are contracted with the first ones of `kernel`.
      precision: precision of the product.
    """
    leading, features = x.shape[: x.ndim - contracted], kernel.shape[contracted:]
    matrix = jax.tree.map(lambda part: part.reshape(-1, math.prod(features)), kernel)
    rows = x.reshape(*leading, math.prod(kernel.shape[:contracted]))
    return _product(rows, matrix, precision).reshape(*leading, *features)


def _product(x, matrix, precision):
    def in_blocks(factors):
        return _by_blocks(*factors, precision=precision)

    if not isinstance(matrix, Int8):
        return in_blocks((x, matrix)).astype(x.dtype)

    def at_once(factors):
        x, values = factors
        return jnp.matmul(
            x, values.astype(x.dtype), precision=precision, preferred_element_type=jnp.float32
        )

    library = dispatch.Kernel(lambda _: True, at_once)
    out = dispatch.call(
        None,
        (x, matrix.values),
        reference=in_blocks,
        kernels={"tpu": lambda: library, "gpu": lambda: library},
        split=lambda run: run,
    )
    return (out * matrix.scale[0]).astype(x.dtype)


def _by_blocks(x, matrix, *, precision):
    """`x @ matrix` in float32, in blocks of the matrix's rows that are widened one by one."""
    inputs, outputs = matrix.shape
    x = x.astype(jnp.float32)
    count = blocks(math.prod(x.shape[:-1]), inputs, outputs)
    step = inputs // count

    def of(first, size):
        rows = jax.lax.dynamic_slice_in_dim(matrix, first, size)
        columns = jax.lax.dynamic_slice_in_dim(x, first, size, axis=-1)
        return jnp.matmul(columns, _widened(rows), precision=precision)

    if count == 1:
        return of(0, inputs)
    out = jax.lax.fori_loop(
        0, count, lambda i, out: out + of(i * step, step), jnp.zeros((*x.shape[:-1], outputs))
    )
    rest = inputs - count * step
    return out + of(count * step, rest) if rest else out


def _widened(rows: UInt16[Array, "K N"] | Int[Array, "K N"]) -> Float[Array, "K N"]:
    if rows.dtype == jnp.uint16:  # the upper half of a float32 is a bfloat16
        return jax.lax.bitcast_convert_type(rows.astype(jnp.uint32) << 16, jnp.float32)
    return rows.astype(jnp.float32)
