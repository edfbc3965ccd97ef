"""The keys and values of a cross-attention: writing them to rings, and reading those of a patch."""

from bytelax_kernels.cross_attention.api import read_one, write

__all__ = ["read_one", "write"]
