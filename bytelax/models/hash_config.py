"""Configuration of the hash n-gram embeddings."""

import dataclasses

PRIMES = (
    1000000007, 5915587277, 1500450271, 3267000013, 5754853343, 4093082899,
    9576890767, 3628273133, 2860486313, 5463458053, 3367900313,
)  # fmt: skip

_MAX_VOCAB = 1 << 24  # `_remainder` works byte by byte: remainder * 256 must fit in 32 bits


@dataclasses.dataclass(frozen=True, kw_only=True)
class HashConfig:
    """Hash n-gram tables: `functions * len(groups)` hashes, each into `vocab` rows.

    Attributes:
      groups: n-gram lengths, in ids.
      vocab: number of rows of each table.
      functions: number of hash functions for each n-gram length.
    """

    groups: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    vocab: int = 500_002
    functions: int = 1

    def __post_init__(self):
        if not 0 < self.vocab < _MAX_VOCAB:
            raise ValueError(f"hash vocab {self.vocab} is outside 1..{_MAX_VOCAB - 1}")
        if self.functions > len(PRIMES):
            raise ValueError(f"at most {len(PRIMES)} hash functions, got {self.functions}")
        if any(not 1 <= group <= 128 for group in self.groups):
            raise ValueError(f"hash group sizes must lie in 1..128, got {self.groups}")

    @property
    def rows(self) -> int:
        """Number of rows of the fused table, which holds the tables of all hashes."""
        return self.functions * len(self.groups) * self.vocab

    @property
    def history(self) -> int:
        """Number of ids before the current one that the longest n-gram covers."""
        return max(self.groups, default=1) - 1
