"""Which masked bytes of a block to fill in from one pass of the decoder.

Rules of Fast BLT (arXiv 2605.08044, section 2.2) and of EB-Sampler (arXiv 2505.24857), applied by
`bytelax_kernels.unmask`. They judge the model's own laws, before temperature and truncation: greedy
decoding would make every byte look certain. Entropies are in nats.
"""

import dataclasses
from typing import Literal, Protocol, runtime_checkable

from bytelax_kernels.unmask import Rule


@runtime_checkable
class Unmasking(Protocol):
    @property
    def rule(self) -> Rule:
        """Which cells to fill: some of those masked, at least one in each row that has any."""
        ...


@dataclasses.dataclass(frozen=True)
class Confidence:
    """Every byte whose likeliest value has a probability above alpha, or the single surest."""

    alpha: float = 0.7

    def __post_init__(self):
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha is a probability, 0 <= alpha < 1, got {self.alpha}")

    @property
    def rule(self) -> Rule:
        return Rule("confidence", self.alpha)


@dataclasses.dataclass(frozen=True)
class EntropyBound:
    """The most certain bytes whose entropies add up to at most gamma, or the single most certain.

    Attributes:
      gamma: nats.
      bounded: "sum" bounds the sum of the entropies, which is Fast BLT's wording. "sum-minus-max"
        leaves out the largest of them, which is EB-Sampler's bound on what filling bytes
        independently can lose.
    """

    gamma: float = 1.0
    bounded: Literal["sum", "sum-minus-max"] = "sum"

    def __post_init__(self):
        if not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma is a number of nats, at least 0, got {self.gamma}")
        if self.bounded not in ("sum", "sum-minus-max"):
            raise ValueError(f"the entropy rule {self.bounded!r} is not sum or sum-minus-max")

    @property
    def rule(self) -> Rule:
        return Rule("entropy" if self.bounded == "sum" else "entropy-but-one", self.gamma)


@dataclasses.dataclass(frozen=True)
class OneStep:
    """All of them, from the first pass."""

    rule = Rule("all")
