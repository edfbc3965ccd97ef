"""The rule that leaves the target's distribution as it is, whatever the sampling."""

import dataclasses
from typing import Any

from bytelax.decode.acceptance.base import Acceptance
from bytelax.decode.acceptance.byte_by_byte import greedy, rejection
from bytelax.decode.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Lossless:
    """`greedy` where the likeliest byte is taken, `sampled` where bytes are drawn.

    Drafters of trees name the rule that judges them, in `judged_by`.

    Attributes:
      sampled: `rejection` or `block_verification`.
    """

    sampled: Acceptance = rejection

    lossless = True

    def rule(self, law: Sampling, drafter: Any) -> Acceptance:
        """The rule for requests that sample so, and for this drafter."""
        judge = getattr(drafter, "judged_by", None)
        return judge or (greedy if law.greedy else self.sampled)


lossless = Lossless()
