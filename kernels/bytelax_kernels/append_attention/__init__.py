"""Self-attention of a window that writes the window to its cache in the same operation."""

from bytelax_kernels.append_attention.api import append_attention as append_attention
from bytelax_kernels.append_attention.inputs import Inputs as Inputs
from bytelax_kernels.append_attention.inputs import Projections as Projections
from bytelax_kernels.append_attention.reference import append as append
from bytelax_kernels.append_attention.reference import slots_of as slots_of
from bytelax_kernels.append_attention.rotary import frequencies as frequencies
from bytelax_kernels.append_attention.rotary import rotary as rotary
