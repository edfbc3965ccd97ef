"""One unmasking step: which masked cells of a block to fill in, and with which ids."""

from bytelax_kernels.unmask.api import unmask
from bytelax_kernels.unmask.reference import chosen_by
from bytelax_kernels.unmask.rule import Rule, Unmasked

__all__ = ["Rule", "Unmasked", "chosen_by", "unmask"]
