"""Self-attention of a window that writes the window to its cache in the same operation."""

from bytelax_kernels.append_attention.api import append_attention
from bytelax_kernels.append_attention.reference import append, slots_of
from bytelax_kernels.append_attention.rotary import frequencies, rotary
from bytelax_kernels.append_attention.window import Projections, Window

__all__ = [
    "Projections",
    "Window",
    "append",
    "append_attention",
    "frequencies",
    "rotary",
    "slots_of",
]
