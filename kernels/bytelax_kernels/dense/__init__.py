"""A product of few rows in one operation with the norm before it and what follows it."""

from bytelax_kernels.dense import cpu as cpu
from bytelax_kernels.dense import gpu as gpu
from bytelax_kernels.dense.api import dense as dense
from bytelax_kernels.dense.panels import Panels as Panels
from bytelax_kernels.dense.reference import added as added
from bytelax_kernels.dense.reference import normalized as normalized
