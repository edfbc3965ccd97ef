"""Acceptance that is given instead of measured: what a method would cost on weights of any size.

Random weights accept nothing, so a model that has not been trained cannot be timed. Here the
drafter drafts and the target verifies as ever, but how much of a draft is kept is drawn from given
chances. The text that comes out means nothing; the passes and the time they take do.
"""

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from bytelax.decode import Draft, Emitted, follow, is_drafted


@dataclasses.dataclass(frozen=True)
class Replayed:
    """An acceptance rule for benchmarks, `generate(..., accept=Replayed(...))`: lossy, and it
    ignores which bytes were drafted.

    Attributes:
      by_position: chance that the byte at each place is accepted, as `acceptance_by_position` of
        the statistics has it: of all drafts, so it never rises.
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
        # Padded places and those of a longer window than was measured accept nothing.
        chances = jnp.asarray((*self.by_position, *[0.0] * places)[:places])
        # One number decides how far a draft is kept: P(at least j + 1 places) is the chance at j.
        kept = is_drafted(draft) & (uniforms[:, 0, :1] < chances)
        return follow(draft, kept.sum(1), log_probs, uniforms[:, 1])
