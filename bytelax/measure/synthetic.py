"""Given acceptance rates in place of measured ones: the cost of a method on untrained weights.

With random weights hardly any draft is accepted, so an untrained model cannot be timed. Here the
drafter drafts and the target verifies as usual, but how much of a draft is kept is sampled from
given probabilities. The generated text is meaningless; the passes and their times are not.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import Draft, Emitted, follow, is_drafted


@dataclasses.dataclass(frozen=True)
class Replayed:
    """LOSSY: accepts drafts at given rates, whatever bytes they hold. For benchmarks.

    Use it as `generate(..., accept=Replayed(...))`.

    Attributes:
      by_position: probability that the byte at each position is accepted, as in
        `acceptance_by_position` of the statistics. It counts all drafts, so it never increases.

    Raises:
      ValueError: the probabilities increase or lie outside [0, 1].
    """

    by_position: tuple[float, ...]

    def __post_init__(self):
        falls = all(
            a >= b for a, b in zip((1.0, *self.by_position), self.by_position, strict=False)
        )
        if not falls or min(self.by_position, default=0.0) < 0:
            raise ValueError(
                f"acceptance by position falls from at most 1 to at least 0, got {self.by_position}"
            )

    def __call__(
        self, draft: Draft, log_probs: Float[Array, "B W V"], uniforms: Float[Array, "B 2 W"]
    ) -> Emitted:
        if draft.parents is not None:
            raise ValueError("given acceptance is by place of a chain; this method drafts trees")
        places = draft.ids.shape[1]
        # Nothing is accepted in padding, or beyond the draft length that was measured.
        chances = jnp.asarray((*self.by_position, *[0.0] * places)[:places])
        # One number per row decides how much is kept: P(at least j + 1 bytes) is chances[j].
        kept = is_drafted(draft) & (uniforms[:, 0, :1] < chances)
        return follow(draft, kept.sum(1), log_probs, uniforms[:, 1])
