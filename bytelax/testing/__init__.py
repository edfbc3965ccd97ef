"""Exact tests of losslessness for any method, with all randomness integrated out."""

from bytelax.testing.exact_law import distance, enumerate_rule, exact_law, target_law
from bytelax.testing.lossless import assert_lossless
from bytelax.testing.tables import TableDrafter, TableTarget, table

__all__ = [
    "TableDrafter",
    "TableTarget",
    "assert_lossless",
    "distance",
    "enumerate_rule",
    "exact_law",
    "table",
    "target_law",
]
