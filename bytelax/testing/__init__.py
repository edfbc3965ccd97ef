"""Exact tests of losslessness for any method, with all randomness integrated out."""

from bytelax.testing.exact_law import distance, exact_law, target_law
from bytelax.testing.lossless import assert_lossless

__all__ = ["assert_lossless", "distance", "exact_law", "target_law"]
