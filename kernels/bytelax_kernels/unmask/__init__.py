"""One unmasking step: which masked cells of a block to fill in, and with which ids."""

from bytelax_kernels.unmask.api import unmask as unmask
from bytelax_kernels.unmask.reference import chosen_by as chosen_by
from bytelax_kernels.unmask.rule import Rule as Rule
from bytelax_kernels.unmask.rule import Unmasked as Unmasked
