"""Tasks that a model answers by writing a continuation."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Example(NamedTuple):
    """A prompt, and the truth that its answer is scored against."""

    prompt: bytes
    truth: Any


class Prompted(NamedTuple):
    """A generative task: prompts to continue, and a function that scores the continuations.

    Attributes:
      examples: the prompts, in order.
      stop: an answer ends before the first of these strings.
      new: maximum number of bytes of an answer.
      score: computes figures from answers and truths.
    """

    examples: tuple[Example, ...]
    stop: tuple[bytes, ...]
    new: int
    score: Callable[[Sequence[bytes], Sequence[Any]], dict[str, Any]]

    def answer(self, output: bytes) -> bytes:
        """Cuts a continuation before the first stop string."""
        places = [output.find(stop) for stop in self.stop]
        return output[: min((place for place in places if place >= 0), default=len(output))]

    def scored(self, outputs: Sequence[bytes]) -> dict[str, Any]:
        """Scores the continuations of all examples."""
        answers = [self.answer(output) for output in outputs]
        return self.score(answers, [example.truth for example in self.examples])
