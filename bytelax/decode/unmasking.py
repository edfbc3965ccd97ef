"""Unmasking: which masked bytes of a block to fill in after one pass of the decoder.

A rule is a function `choose(log_probs f32[B, C, V], masked bool[B, C]) -> bool[B, C]`. It reads the
model's own distributions, before temperature and truncation, because under greedy decoding every
byte would look certain. The rules in this module are those of Fast BLT (arXiv 2605.08044, section
2.2) and EB-Sampler (arXiv 2505.24857), and the kernels of `bytelax_kernels.unmask` implement them.
Any other function works too, as plain JAX.
"""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from bytelax_kernels.unmask import Rule, Unmasked, chosen_by, unmask
from jaxtyping import Array, Bool, Float, Int

Unmask = Callable[[Float[Array, "B C V"], Bool[Array, "B C"]], Bool[Array, "B C"]]


@dataclasses.dataclass(frozen=True)
class Known:
    """An unmasking rule with a kernel. Built by `confidence`, `entropy_bound` or `ONE_STEP`."""

    rule: Rule

    def __call__(
        self, log_probs: Float[Array, "B C V"], masked: Bool[Array, "B C"]
    ) -> Bool[Array, "B C"]:
        return chosen_by(self.rule, log_probs, masked)


ONE_STEP = Known(Rule("all"))  # fills every byte in one pass


def confidence(alpha: float = 0.7) -> Known:
    """Unmasks every byte whose top probability is above alpha, or else the most confident one.

    Raises:
      ValueError: alpha is outside [0, 1).
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha is a probability, 0 <= alpha < 1, got {alpha}")
    return Known(Rule("confidence", alpha))


def entropy_bound(gamma: float = 1.0, but_one: bool = False) -> Known:
    """Unmasks the most certain bytes whose entropies sum to at most gamma, but always at least one.

    Args:
      gamma: bound on the sum of entropies, in nats.
      but_one: leave the largest entropy out of the sum. This is EB-Sampler's bound on the error of
        filling bytes independently. Fast BLT describes the sum of all.

    Raises:
      ValueError: gamma is negative or infinite.
    """
    if not 0 <= gamma < float("inf"):
        raise ValueError(f"gamma is a number of nats, at least 0, got {gamma}")
    return Known(Rule("entropy-but-one" if but_one else "entropy", gamma))


RULES: dict[str, tuple[Callable[..., Unmask], str | None]] = {  # by name, and its bound
    "confidence": (confidence, "alpha"),
    "entropy": (entropy_bound, "gamma"),
    "entropy-minus-max": (functools.partial(entropy_bound, but_one=True), "gamma"),
    "one-step": (lambda: ONE_STEP, None),
}


def known(unmask: str | Unmask, **bounds: float | None) -> Unmask:
    """Returns the unmasking rule of a name, or `unmask` itself if it is a rule.

    Args:
      unmask: a key of `RULES`, or a rule.
      **bounds: `alpha` or `gamma` of the rule; None selects the default.

    Raises:
      ValueError: the rule does not have a bound, or it is out of range.
    """
    rule, own = RULES[unmask] if isinstance(unmask, str) else (lambda: unmask, None)
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    for name in given.keys() - {own}:
        raise ValueError(f"the unmasking rule {unmask!r} has no {name}")
    return rule(**given)


def fill_in(
    choose: Unmask,
    logits: Float[Array, "B C V"],
    ids: Int[Array, "B C"],
    masked: Bool[Array, "B C"],
    *,
    drawn: Int[Array, "B C"] | None = None,
) -> Unmasked:
    """Fills in the masked cells of a block that an unmasking rule chooses.

    If the rule chooses no masked cell of a row, the most confident one is filled, so that every
    block is complete after at most C passes.

    Args:
      choose: the rule.
      logits: the model's logits for each cell; -inf for ids that are never emitted, but not for
        all.
      ids: the block.
      masked: its cells that are still masked.
      drawn: the id to fill each cell with; None takes the likeliest, with ties to the lowest id.

    Raises:
      ValueError: the rule does not return a mask.
    """
    if isinstance(choose, Known):
        return unmask(logits, ids, masked, rule=choose.rule, drawn=drawn)
    own = jax.nn.log_softmax(logits)
    drawn = logits.argmax(-1).astype(jnp.int32) if drawn is None else drawn
    surest = chosen_by(Rule("confidence", 1.0), own, masked)
    chosen = jnp.asarray(choose(own, masked))
    if chosen.shape != masked.shape or chosen.dtype != bool:
        raise ValueError(
            f"an unmasking rule returns bool{list(masked.shape)}, as `masked` is; got "
            f"{chosen.dtype}{list(chosen.shape)}"
        )
    chosen &= masked
    chosen = jnp.where(chosen.any(1, keepdims=True), chosen, surest)
    return Unmasked(jnp.where(chosen, drawn, ids), chosen, drawn)
