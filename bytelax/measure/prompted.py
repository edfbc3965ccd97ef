"""A task that a model answers by writing."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple


class Example(NamedTuple):
    """A prompt, and what the answer is judged by."""

    prompt: bytes
    truth: Any


class Prompted(NamedTuple):
    """Prompts to continue, and what judges the continuations.

    Attributes:
      examples: in order.
      stop: an answer ends before the first of these.
      new: most bytes of an answer.
      score: figures of answers and truths.
    """

    examples: tuple[Example, ...]
    stop: tuple[bytes, ...]
    new: int
    score: Callable[[Sequence[bytes], Sequence[Any]], dict[str, Any]]

    def answer(self, output: bytes) -> bytes:
        """What a continuation says before it goes on to something else."""
        places = [output.find(stop) for stop in self.stop]
        return output[: min((place for place in places if place >= 0), default=len(output))]

    def scored(self, outputs: Sequence[bytes]) -> dict[str, Any]:
        """Figures of the continuations of all examples."""
        answers = [self.answer(output) for output in outputs]
        return self.score(answers, [example.truth for example in self.examples])
