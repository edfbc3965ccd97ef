"""Answers a task with a model, example by example, and scores the answers."""

import base64
import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from bytelax.generation import generate
from bytelax.measure import likelihood, multiple_choice
from bytelax.measure.prompted import Prompted
from bytelax.measure.tasks import Read
from bytelax.model import Model
from bytelax.statistics import Statistics


def examples(task: Read) -> int:
    """Returns the number of examples of a task."""
    return len(task.examples) if isinstance(task, Prompted) else len(task)


def answers(
    model: Model,
    task: Read,
    *,
    known: Collection[int] = (),
    batch: int = 1,
    seed: int = 0,
    **options,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Answers the examples that are not answered yet; yields their index and the answer as JSON.

    A prompt that exceeds the model's context loses its beginning.

    Args:
      model: the model that answers.
      task: from `tasks.read`.
      known: indices of examples to leave out.
      batch: number of prompts that are continued together.
      seed: example i is sampled with seed + i.
      **options: keywords of `generate`; multiple-choice tasks take none.
    """
    missing = [index for index in range(examples(task)) if index not in known]
    if not isinstance(task, Prompted):
        for index in missing:
            yield index, {"log_probs": multiple_choice.log_probs(model, task[index])}
        return
    for start in range(0, len(missing), batch):
        rows = missing[start : start + batch]
        given = {"max_new_bytes": task.new} | options
        whole = [task.examples[index].prompt for index in rows]
        prompts = [
            likelihood.fitting(model, each, given["max_new_bytes"]) or each for each in whole
        ]
        seeds = [seed + index for index in rows]
        out = generate(model, prompts, seeds=seeds, stop=task.stop, **given)
        for index, result in zip(rows, out.results, strict=True):
            yield (
                index,
                {
                    "base64": base64.b64encode(result.bytes).decode("ascii"),
                    "stop": result.stop,
                    "stats": dataclasses.asdict(result.stats),
                },
            )


def too_long(model: Model, task: Read, *, new: int | None = None) -> int:
    """Returns how many examples exceed the model's context and lose their beginning.

    Args:
      model: the model that answers.
      task: from `tasks.read`.
      new: maximum number of bytes of an answer; None takes the task's own.

    Raises:
      ValueError: an answer could fill the whole context.
    """
    limit = model.config.max_bytes - 1
    if isinstance(task, Prompted):
        room = task.new if new is None else new
        if room >= limit:
            raise ValueError(
                f"answers of {room} bytes leave no room for a prompt in a context of {limit} bytes"
            )
        return sum(len(example.prompt) + room > limit for example in task.examples)
    return sum(len(q.context) + max(map(len, q.choices)) > limit for q in task)


def figures(task: Read, found: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Scores the answers to all examples of a task, as JSON.

    Args:
      task: from `tasks.read`.
      found: the answer to each example, from `answers`, by index.
    """
    rows = [found[index] for index in range(examples(task))]
    if not isinstance(task, Prompted):
        accuracy = multiple_choice.accuracy(task, [row["log_probs"] for row in rows])
        return {
            "examples": accuracy.questions,
            "accuracy": accuracy.likeliest._asdict(),
            "accuracy_normalised": accuracy.normalised._asdict(),
            "chance": accuracy.chance,
        }
    stats = Statistics.total([Statistics(**row["stats"]) for row in rows])
    outputs = [base64.b64decode(row["base64"]) for row in rows]
    return {"examples": len(rows), **task.scored(outputs), "stats": stats.to_dict()}
