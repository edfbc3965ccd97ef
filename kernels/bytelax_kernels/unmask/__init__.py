"""Which cells of a masked block to fill in, and with what."""

from bytelax_kernels.unmask.api import unmask
from bytelax_kernels.unmask.reference import chosen_by
from bytelax_kernels.unmask.rule import Rule, Unmasked

__all__ = ["Rule", "Unmasked", "chosen_by", "unmask"]
