"""What text generation returns."""

import dataclasses

import numpy as np

from bytelax.decode.origins import Origins
from bytelax.statistics import Statistics


@dataclasses.dataclass(frozen=True)
class Result:
    """The continuation of one prompt.

    Attributes:
      index: index of the prompt among those given.
      bytes: the continuation, without EOS and stop string.
      stop: why it ended: "eos", "stop" or "length"; or "not-finite", if the model's next logits are
        NaN or infinite. Nothing is written from such logits: `bytes` is what stood before them.
      stats: counts and costs of this row.
      log_probs: the model's log-probability of each byte of `bytes`, before temperature and
        truncation, in nats; None if not requested.
      origins: provenance of each byte of `bytes`; None if not requested.
    """

    index: int
    bytes: bytes
    stop: str
    stats: Statistics
    log_probs: np.ndarray | None = None
    origins: Origins | None = None

    @property
    def text(self) -> str:
        """The continuation decoded as UTF-8, with U+FFFD in place of invalid bytes."""
        return self.bytes.decode("utf-8", "replace")


@dataclasses.dataclass(frozen=True)
class Output:
    """The output of `generate`: one result per prompt, in order.

    Attributes:
      results: the continuations.
      stats: totals over the batch, with its wall-clock times.
      lossless: whether the method preserves the model's distribution.
    """

    results: list[Result]
    stats: Statistics
    lossless: bool

    @property
    def bytes(self) -> list[bytes]:
        """The continuations as bytes."""
        return [result.bytes for result in self.results]

    @property
    def text(self) -> list[str]:
        """The continuations as text; see `Result.text`."""
        return [result.text for result in self.results]
