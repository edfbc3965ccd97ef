"""Multiple-choice tasks, answered by the likelihood of each choice."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bytelax.measure import files, likelihood
from bytelax.model import Model

_RESAMPLES, _OUTSIDE = 10_000, 5.0  # bootstrap resamples; per cent outside the interval
_LETTERS = "ABCDE"


class Question(NamedTuple):
    """A question and the answers to choose from.

    Attributes:
      context: the text before the answer.
      choices: the answers, each with the space before it.
      answer: index of the right answer.
    """

    context: bytes
    choices: tuple[bytes, ...]
    answer: int


class Share(NamedTuple):
    """A share of right answers, with its 95 % bootstrap interval over questions."""

    value: float
    low: float
    high: float


class Accuracy(NamedTuple):
    """The share of questions that were answered right.

    Attributes:
      questions: number of questions.
      likeliest: accuracy of choosing by the log-probability of the whole answer.
      normalised: accuracy of choosing by the log-probability per byte.
      chance: accuracy of guessing.
    """

    questions: int
    likeliest: Share
    normalised: Share
    chance: float


def log_probs(model: Model, question: Question) -> tuple[float, ...]:
    """Returns the log-probability of each choice given the context, in nats.

    A context that is too long loses its beginning.
    """
    context = likelihood.fitting(model, question.context, max(map(len, question.choices)))
    pairs = [(context, choice) for choice in question.choices]
    return tuple(each.log_prob for each in likelihood.continuations(model, pairs, batch=len(pairs)))


def accuracy(questions: Sequence[Question], found: Sequence[Sequence[float]]) -> Accuracy:
    """Returns the accuracy of choosing the likeliest answer; ties go to the first choice.

    Args:
      questions: at least one.
      found: the log-probabilities of the choices of each question.
    """
    whole, normalised = [], []
    for question, scores in zip(questions, found, strict=True):
        a_byte = np.divide(scores, [len(choice) for choice in question.choices])
        whole.append(int(np.argmax(scores)) == question.answer)
        normalised.append(int(np.argmax(a_byte)) == question.answer)
    chance = np.mean([1 / len(question.choices) for question in questions])
    return Accuracy(len(questions), share(whole), share(normalised), float(chance))


def share(right: Sequence[bool], *, seed: int = 0) -> Share:
    """Returns the share of true values, with its bootstrap interval."""
    count, mean = len(right), float(np.mean(right))
    # The sum of `count` truth values drawn with replacement follows a binomial distribution.
    drawn = np.random.default_rng(seed).binomial(count, mean, _RESAMPLES) / count
    low, high = np.percentile(drawn, [_OUTSIDE / 2, 100 - _OUTSIDE / 2])
    return Share(mean, float(low), float(high))


def piqa(folder: Path) -> list[Question]:
    """Reads PIQA from `valid.jsonl` and `valid-labels.lst`."""
    labels = files.lines(folder / "valid-labels.lst")
    rows = files.records(folder / "valid.jsonl")
    return [
        _question(f"Question: {row['goal']}\nAnswer:", (row["sol1"], row["sol2"]), int(label))
        for row, label in zip(rows, labels, strict=True)
    ]


def arc(file: Path) -> list[Question]:
    """Reads ARC from JSON lines, in the authors' layout or that of the Hugging Face Hub."""
    return [_of_arc(row) for row in files.records(file)]


def _of_arc(row: dict) -> Question:
    if isinstance(row["question"], dict):
        stem = row["question"]["stem"]
        labels, texts = zip(
            *((choice["label"], choice["text"]) for choice in row["question"]["choices"]),
            strict=True,
        )
    else:
        stem, labels, texts = row["question"], row["choices"]["label"], row["choices"]["text"]
    return _question(f"Question: {stem}\nAnswer:", texts, list(labels).index(row["answerKey"]))


def hellaswag(file: Path) -> list[Question]:
    """Reads HellaSwag from `hellaswag_val.jsonl`, or from its Hugging Face Hub version."""
    return [
        _question(
            _unmarked(f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"),
            [_unmarked(ending) for ending in row["endings"]],
            int(row["label"]),
        )
        for row in files.records(file)
    ]


def _unmarked(text: str) -> str:
    """Removes the markup left over from WikiHow pages, as lm-evaluation-harness does."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def mmlu(folder: Path, *, shots: int) -> list[Question]:
    """Reads MMLU from `mmlu_test.jsonl`, with `shots` solved questions per subject.

    The solved questions come from `mmlu_dev.jsonl`.

    Raises:
      ValueError: a subject has fewer than `shots` solved questions.
    """
    solved: dict[str, list[str]] = {}
    for row in files.records(folder / "mmlu_dev.jsonl") if shots else []:
        solved.setdefault(row["subject"], []).append(_asked(row) + f" {_LETTERS[row['answer']]}\n")
    return list(_mmlu(files.records(folder / "mmlu_test.jsonl"), solved, shots))


def _mmlu(rows, solved, shots) -> Iterator[Question]:
    for row in rows:
        title = f"about {row['subject'].replace('_', ' ')}"
        examples = solved.get(row["subject"], [])[:shots]
        if len(examples) < shots:
            raise ValueError(f"{row['subject']} has {len(examples)} solved questions, not {shots}")
        head = f"The following are multiple choice questions (with answers) {title}."
        context = "\n\n".join([head, *(each.rstrip() for each in examples), _asked(row)])
        yield _question(context, _LETTERS[: len(row["choices"])], row["answer"])


def _asked(row: dict) -> str:
    choices = zip(_LETTERS, row["choices"], strict=False)
    return "\n".join([row["question"], *(f"{a}. {text}" for a, text in choices), "Answer:"])


def _question(context: str, choices: Sequence[str], answer: int) -> Question:
    return Question(context.encode(), tuple(f" {each}".encode() for each in choices), answer)
