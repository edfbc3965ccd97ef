"""Acceptance rules: pure functions of a draft, the target's distributions and uniform numbers.

No rule takes a random key, so its output distribution can be enumerated exactly.
"""

from bytelax.decode.acceptance.base import (
    Acceptance,
    Emitted,
    at_draft,
    drafted_probs,
    follow,
    is_drafted,
    prefix,
    residual,
)
from bytelax.decode.acceptance.block import block_verification
from bytelax.decode.acceptance.byte_by_byte import greedy, rejection
from bytelax.decode.acceptance.lossless import Lossless, lossless
from bytelax.decode.acceptance.lossy import Typical, take_all, typical
from bytelax.decode.acceptance.spectr import SpecTr, k_seq
from bytelax.decode.acceptance.tree import Tree

__all__ = [
    "Acceptance",
    "Emitted",
    "Lossless",
    "SpecTr",
    "Tree",
    "Typical",
    "at_draft",
    "block_verification",
    "drafted_probs",
    "follow",
    "greedy",
    "is_drafted",
    "k_seq",
    "lossless",
    "prefix",
    "rejection",
    "residual",
    "take_all",
    "typical",
]
