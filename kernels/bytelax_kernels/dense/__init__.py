"""A matrix product of few rows, with the norm before it and what follows it."""

from bytelax_kernels.dense.api import dense, fuses
from bytelax_kernels.dense.operands import Operands
from bytelax_kernels.dense.reference import added, normalized

__all__ = ["Operands", "added", "dense", "fuses", "normalized"]
