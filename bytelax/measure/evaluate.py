"""A model's answers to the examples of a task, one by one, and what they are worth."""

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
    """How many there are."""
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
    """The answers that are not known yet, as JSON, with the index of their example.

    What does not fit the model's context loses its beginning.

    Args:
      model: answers.
      task: from `tasks.read`.
      known: indices that are left out.
      batch: prompts that are continued together.
      seed: example i is sampled with seed + i.
      **options: of `generate`; questions with given answers take none.
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
    """How many examples lose their beginning.

    Args:
      new: most bytes of an answer; as the task has it if None.

    Raises:
      ValueError: an answer may take the whole context.
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
    """What the answers to all examples are worth, as JSON."""
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
