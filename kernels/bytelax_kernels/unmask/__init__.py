"""Which cells of a masked block to fill in, and with what."""

from bytelax_kernels.unmask.api import unmask
from bytelax_kernels.unmask.rule import Rule, Unmasked

__all__ = ["Rule", "Unmasked", "unmask"]
