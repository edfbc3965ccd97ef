"""The keys and values of a cross-attention: writing them to rings, and reading those of a patch."""

from bytelax_kernels.cross_attention.api import read_one as read_one
from bytelax_kernels.cross_attention.api import write as write
