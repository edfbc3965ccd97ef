"""Lazy tensors: shape and dtype are known, and rows are read when they are needed."""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import jax.numpy as jnp
import numpy as np

from bytelax.checkpoints.config import CheckpointError

BLOCK_BYTES = 32 << 20  # number of bytes read or written at a time


@dataclasses.dataclass(frozen=True)
class Tensor:
    """A lazy tensor of a state dict.

    Attributes:
      shape: shape of the tensor.
      dtype: dtype of the tensor; bfloat16 is that of `ml_dtypes`.
      rows: `rows(start, stop)` reads this range of the first axis as an array.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    rows: Callable[[int, int], np.ndarray]

    @classmethod
    def of(cls, array: np.ndarray) -> "Tensor":
        """The tensor of an array that is in memory."""
        return cls(array.shape, array.dtype, lambda start, stop: array[start:stop])

    def whole(self) -> np.ndarray:
        """Reads the whole tensor."""
        return self.rows(0, self.shape[0])

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """Iterates over blocks of about `BLOCK_BYTES`, each as (index of its first row, rows)."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        step = max(1, BLOCK_BYTES // max(1, row_bytes))
        for start in range(0, self.shape[0], step):
            yield start, self.rows(start, min(start + step, self.shape[0]))


def check_finite(array: np.ndarray, name: str) -> None:
    """Raises CheckpointError if an array of floats holds NaN or an infinity.

    As integers, those with and without a sign bit are larger than all finite numbers with the same
    sign bit, so that two maxima decide it, at the speed of memory and without a copy.

    Args:
      array: floats of 16, 32 or 64 bits.
      name: what to call the array in the message.
    """
    for integer, infinity in (("i", np.inf), ("u", -np.inf)):
        bits = np.dtype(f"{integer}{array.dtype.itemsize}")
        smallest = np.array(infinity, array.dtype).view(bits)
        if array.view(bits).max(initial=0) >= smallest:
            raise CheckpointError(not_finite(name, array.dtype))


def not_finite(name: str, dtype: np.dtype) -> str:
    """The error message for an array that is not finite in a dtype, its own or a requested one."""
    return (
        f"{name} holds NaN or infinite values in {dtype}; download it again, take an earlier "
        "checkpoint, or load it in a dtype of wider range"
    )


def concatenate(parts: list[Tensor]) -> Tensor:
    """Concatenates tensors along their first axis, lazily. Their other axes must be equal."""
    ends = np.cumsum([part.shape[0] for part in parts]).tolist()
    dtype = np.dtype(functools.reduce(jnp.promote_types, (part.dtype for part in parts)))

    def rows(start, stop):
        found = []
        for part, end in zip(parts, ends, strict=True):
            begin = end - part.shape[0]
            first, last = max(start, begin), min(stop, end)
            if first < last:
                found.append(part.rows(first - begin, last - begin).astype(dtype, copy=False))
        if not found:
            return np.empty((0, *parts[0].shape[1:]), dtype)
        return np.concatenate(found)

    return Tensor((ends[-1], *parts[0].shape[1:]), dtype, rows)
