"""Which masked bytes of a block to fill in from one pass of the decoder.

Rules of Fast BLT (arXiv 2605.08044, section 2.2) and of EB-Sampler (arXiv 2505.24857). They judge
the model's own laws, before temperature and truncation: greedy decoding would make every byte look
certain. Entropies are in nats.
"""

import dataclasses
from typing import Literal, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


@runtime_checkable
class Unmasking(Protocol):
    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        """The cells to fill: some of those `masked`, at least one in each row that has any.

        Args:
          log_probs: the law of each cell's byte.
          masked: the cells still to be filled.
        """
        ...


@dataclasses.dataclass(frozen=True)
class Confidence:
    """Every byte whose likeliest value has a probability above alpha, or the single surest."""

    alpha: float = 0.7

    def __post_init__(self):
        if not 0 <= self.alpha < 1:
            raise ValueError(f"alpha is a probability, 0 <= alpha < 1, got {self.alpha}")

    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        surest = jnp.where(masked, jnp.exp(log_probs.max(-1)), -1.0)
        first = jnp.arange(masked.shape[1]) == surest.argmax(1)[:, None]
        return masked & ((surest > self.alpha) | first)


@dataclasses.dataclass(frozen=True)
class EntropyBound:
    """The most certain bytes whose entropies add up to at most gamma, or the single most certain.

    Attributes:
      gamma: nats.
      rule: "sum" bounds the sum of the entropies, which is Fast BLT's wording. "sum-minus-max"
        leaves out the largest of them, which is EB-Sampler's bound on what filling bytes
        independently can lose.
    """

    gamma: float = 1.0
    rule: Literal["sum", "sum-minus-max"] = "sum"

    def __post_init__(self):
        if not 0 <= self.gamma < float("inf"):
            raise ValueError(f"gamma is a number of nats, at least 0, got {self.gamma}")
        if self.rule not in ("sum", "sum-minus-max"):
            raise ValueError(f"the entropy rule {self.rule!r} is not sum or sum-minus-max")

    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        finite = jnp.isfinite(log_probs)  # what is banned has no share: 0 log 0 = 0
        entropy = -jnp.sum(jnp.where(finite, jnp.exp(log_probs) * log_probs, 0), axis=-1)
        entropy = jnp.where(masked, jnp.maximum(entropy, 0), jnp.inf)
        order = jnp.argsort(entropy, axis=1)  # stable: equals from left to right
        ascending = jnp.take_along_axis(entropy, order, axis=1)
        total = jnp.cumsum(jnp.where(jnp.isfinite(ascending), ascending, 0), axis=1)
        if self.rule == "sum-minus-max":
            total = total - jnp.where(jnp.isfinite(ascending), ascending, 0)
        chosen = (total <= self.gamma).at[:, 0].set(True)
        back = jnp.argsort(order, axis=1)
        return masked & jnp.take_along_axis(chosen, back, axis=1)


@dataclasses.dataclass(frozen=True)
class OneStep:
    """All of them, from the first pass."""

    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        return masked
