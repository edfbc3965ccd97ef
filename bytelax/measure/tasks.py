"""The tasks of `bytelax eval` by name, and where their data lies in a directory of data sets."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bytelax.measure import code, files, multiple_choice, sandbox, translation
from bytelax.measure.multiple_choice import Question
from bytelax.measure.prompted import Prompted

Read = tuple[Question, ...] | Prompted


class Task(NamedTuple):
    """How to read a task.

    Attributes:
      place: file or folder of its data, relative to a directory of data sets.
      shots: number of solved examples in each prompt, as published.
      read: takes that path, `shots` and the maximum number of examples, and returns the task.
    """

    place: str
    shots: int
    read: Callable[[Path, int, int | None], Read]


def read(name: str, path: Path, *, shots: int | None = None, limit: int | None = None) -> Read:
    """Reads the examples of a task.

    Args:
      name: a key of `TASKS`.
      path: path of its data, as `Task.place`.
      shots: number of solved examples in each prompt; None takes the published number.
      limit: maximum number of examples, evenly spread over the data; None takes all.

    Raises:
      ValueError: there is no such task, the files have another layout, or `shots` exceeds the
        number of solved examples.
    """
    task = named(name)
    try:
        found = task.read(path, task.shots if shots is None else shots, limit)
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{path}: not in the layout of {name}: {error!r}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if not (found.examples if isinstance(found, Prompted) else found):
        raise ValueError(f"{path}: there are no examples of {name}")
    return found


def named(name: str) -> Task:
    """Returns the task of this name.

    Raises:
      ValueError: there is no such task.
    """
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}; there are: {', '.join(TASKS)}")
    return TASKS[name]


def _without_examples(shots: int) -> None:
    if shots:
        raise ValueError(f"this task has no solved examples: its shots are 0, not {shots}")


def _choices(questions: Callable[[Path], list[Question]]):
    def read(path: Path, shots: int, limit: int | None) -> Read:
        _without_examples(shots)
        return files.spread(questions(path), limit)

    return read


def _mmlu(path: Path, shots: int, limit: int | None) -> Read:
    return files.spread(multiple_choice.mmlu(path, shots=shots), limit)


def _translation(sentences, test: str, valid: str, language: str, new: int):
    def read(path: Path, shots: int, limit: int | None) -> Read:
        translation.needs_sacrebleu()  # fails before any time is spent on translating
        examples = files.spread(sentences(path, language, valid), shots) if shots else ()
        if len(examples) < shots:
            raise ValueError(f"{path}: {shots} solved examples are more than its {len(examples)}")
        chosen = files.spread(sentences(path, language, test), limit)
        return translation.task(chosen, examples, language, new=new)

    return read


def _humaneval(path: Path, shots: int, limit: int | None) -> Read:
    sandbox.check()  # fails before any time is spent on generating
    _without_examples(shots)
    return code.humaneval(path, limit=limit, new=512)


def _mbpp(path: Path, shots: int, limit: int | None) -> Read:
    sandbox.check()
    return code.mbpp(path, shots=shots, limit=limit, new=256)


_tatoeba = functools.partial(_translation, translation.tatoeba, "test", "valid", new=128)
_flores = functools.partial(_translation, translation.flores, "devtest", "dev", new=512)

TASKS: dict[str, Task] = {
    "arc-easy": Task("arc/ARC-Easy-Test.jsonl", 0, _choices(multiple_choice.arc)),
    "arc-challenge": Task("arc/ARC-Challenge-Test.jsonl", 0, _choices(multiple_choice.arc)),
    "piqa": Task("piqa", 0, _choices(multiple_choice.piqa)),
    "hellaswag": Task("hellaswag/hellaswag_val.jsonl", 0, _choices(multiple_choice.hellaswag)),
    "mmlu": Task("mmlu", 5, _mmlu),
    "tatoeba-deu-eng": Task("tatoeba_deu_eng", 4, _tatoeba(language="deu")),
    "tatoeba-fra-eng": Task("tatoeba_fra_eng", 4, _tatoeba(language="fra")),
    "flores-deu-eng": Task("flores200", 4, _flores(language="deu")),
    "flores-fra-eng": Task("flores200", 4, _flores(language="fra")),
    "humaneval": Task("humaneval/HumanEval.jsonl", 0, _humaneval),
    "mbpp": Task("mbpp/mbpp.jsonl", 3, _mbpp),
}
