"""Self-attention of a window that writes the window to its cache in the same operation."""

from bytelax_kernels.append_attention.api import append_attention
from bytelax_kernels.append_attention.inputs import Inputs, Projections
from bytelax_kernels.append_attention.reference import append, slots_of
from bytelax_kernels.append_attention.rotary import frequencies, rotary

__all__ = [
    "Inputs",
    "Projections",
    "append",
    "append_attention",
    "frequencies",
    "rotary",
    "slots_of",
]
