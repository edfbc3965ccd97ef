"""The default acceptance rule, which keeps the target's distribution under any sampling."""

import dataclasses
from typing import Any

from bytelax.decode.acceptance.base import Acceptance
from bytelax.decode.acceptance.block import block_verification
from bytelax.decode.acceptance.byte_by_byte import greedy
from bytelax.decode.sampling import Sampling


@dataclasses.dataclass(frozen=True)
class Lossless:
    """Selects the lossless rule for a request: `greedy` for greedy decoding, otherwise `sampled`.

    A drafter that proposes trees names its own rule in the attribute `judged_by`, which wins.

    Attributes:
      sampled: rule for sampled decoding, `block_verification` or `rejection`.
    """

    sampled: Acceptance = block_verification

    lossless = True

    def rule(self, sampling: Sampling, drafter: Any) -> Acceptance:
        """Returns the rule for requests with these sampling settings and for this drafter."""
        judge = getattr(drafter, "judged_by", None)
        return judge or (greedy if sampling.greedy else self.sampled)


lossless = Lossless()
