"""Acceptance rules: pure functions of a draft, the target's laws and uniform numbers.

No key inside, so a rule can be enumerated exactly.
"""

from bytelax.decode.acceptance.base import Acceptance, Emitted
from bytelax.decode.acceptance.block import block_verification
from bytelax.decode.acceptance.byte_by_byte import greedy, rejection
from bytelax.decode.acceptance.lossy import Typical, take_all, typical
from bytelax.decode.acceptance.several import SpecTr, k_seq
from bytelax.decode.acceptance.tree import Tree

__all__ = [
    "Acceptance",
    "Emitted",
    "SpecTr",
    "Tree",
    "Typical",
    "block_verification",
    "greedy",
    "k_seq",
    "rejection",
    "take_all",
    "typical",
]
