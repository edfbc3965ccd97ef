"""A product of few rows in one operation with the norm before it and what follows it."""

from bytelax_kernels.dense import cpu, gpu
from bytelax_kernels.dense.api import dense
from bytelax_kernels.dense.panels import Panels
from bytelax_kernels.dense.reference import added, normalized

__all__ = ["Panels", "added", "cpu", "dense", "gpu", "normalized"]
