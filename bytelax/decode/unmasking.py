"""Which masked bytes of a block to fill in from one pass of the decoder.

A rule is a function `choose(log_probs f32[B, C, V], masked bool[B, C]) -> bool[B, C]`. It judges
the model's own distributions, before temperature and truncation: greedy decoding would make every
byte look certain. The rules here are those of Fast BLT (arXiv 2605.08044, section 2.2) and of
EB-Sampler (arXiv 2505.24857), which the kernels of `bytelax_kernels.unmask` know; a rule of your
own runs as it is written.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from bytelax_kernels.unmask import Rule, Unmasked, chosen_by, unmask
from jaxtyping import Array, Bool, Float, Int

Unmask = Callable[[Float[Array, "B C V"], Bool[Array, "B C"]], Bool[Array, "B C"]]


@dataclasses.dataclass(frozen=True)
class Known:
    """A rule that the kernels carry out. Built by `confidence`, `entropy_bound` or `ONE_STEP`."""

    rule: Rule

    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        return chosen_by(self.rule, log_probs, masked)


ONE_STEP = Known(Rule("all"))  # every byte, from the first pass


def confidence(alpha: float = 0.7) -> Known:
    """Every byte whose likeliest value has a probability above alpha, or the single surest."""
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is a probability, 0 <= alpha < 1, got {alpha}")
    return Known(Rule("confidence", alpha))


def entropy_bound(gamma: float = 1.0, but_one: bool = False) -> Known:
    """The most certain bytes whose entropies add up to at most gamma, or the single most certain.

    Args:
      gamma: nats.
      but_one: leave out the largest of the entropies, which is EB-Sampler's bound on what filling
        bytes independently can lose. Fast BLT's wording is the sum of all.
    """
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma is a number of nats, at least 0, got {gamma}")
    return Known(Rule("entropy-but-one" if but_one else "entropy", gamma))


def fill_in(
    choose: Unmask,
    logits: Float[Array, "B C V"],
    ids: Int[Array, "B C"],
    masked: Bool[Array, "B C"],
    *,
    drawn: Int[Array, "B C"] | None = None,
) -> Unmasked:
    """Fills the masked cells of a block that a rule chooses.

    A row with masked cells of which the rule chooses none fills its surest, so that every block is
    full after at most C passes.

    Args:
      choose: the rule.
      logits: the model's, of each cell; -inf for ids that are never emitted, but not for all.
      ids: the block.
      masked: its cells still to be filled.
      drawn: what each cell would be filled with; None takes the likeliest id, the lowest of equals.
    """
    if isinstance(choose, Known):
        return unmask(logits, ids, masked, rule=choose.rule, drawn=drawn)
    own = jax.nn.log_softmax(logits)
    drawn = logits.argmax(-1).astype(jnp.int32) if drawn is None else drawn
    surest = chosen_by(Rule("confidence", 1.0), own, masked)
    chosen = choose(own, masked) & masked
    chosen = jnp.where(chosen.any(1, keepdims=True), chosen, surest)
    sure = jnp.exp(jnp.take_along_axis(own, drawn[..., None], axis=-1)[..., 0])
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn, sure)
