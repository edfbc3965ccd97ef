"""Code generation tasks, HumanEval and MBPP, scored by running the tests that come with them."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bytelax.measure import files, sandbox
from bytelax.measure.prompted import Example, Prompted

_HUMANEVAL_STOPS = (b"\nclass ", b"\ndef ", b"\n#", b"\nif ", b"\nprint(", b"\n@")
_MBPP_TEST = range(11, 511)  # ids
_MBPP_SOLVED = range(2, 11)  # solved examples; the authors take them from the second on


def humaneval(file: Path, *, limit: int | None, new: int) -> Prompted:
    """Reads HumanEval from its JSON lines: functions whose body is to be written, without examples.

    Args:
      file: the data.
      limit: maximum number of examples; None takes all.
      new: maximum number of bytes of an answer.
    """
    return Prompted(
        tuple(
            Example(row["prompt"].encode(), (row["prompt"], _checks(row)))
            for row in files.spread(files.records(file), limit)
        ),
        stop=_HUMANEVAL_STOPS,
        new=new,
        score=score,
    )


def _checks(row: dict) -> str:
    return f"\n{row['test']}\ncheck({row['entry_point']})\n"


def mbpp(file: Path, *, shots: int, limit: int | None, new: int) -> Prompted:
    """Reads MBPP from `mbpp.jsonl`: whole programs, after solved examples in the authors' wording.

    Args:
      file: the data.
      shots: number of solved examples in each prompt.
      limit: maximum number of examples; None takes all.
      new: maximum number of bytes of an answer.

    Raises:
      ValueError: there are fewer than `shots` solved examples.
    """
    rows = {row["task_id"]: row for row in files.records(file)}
    if shots > len(_MBPP_SOLVED):
        raise ValueError(f"there are {len(_MBPP_SOLVED)} solved examples, not {shots}")
    examples = [rows[number] for number in _MBPP_SOLVED[:shots]]
    solved = "".join(_task(row) + f"{row['code']}\n[DONE]\n" for row in examples)
    asked = [row for number, row in rows.items() if number in _MBPP_TEST]
    return Prompted(
        tuple(
            Example((solved + _task(row)).encode(), (f"{row['test_setup_code']}\n", _tests(row)))
            for row in files.spread(asked, limit)
        ),
        stop=(b"[DONE]",),
        new=new,
        score=score,
    )


def _task(row: dict) -> str:
    tests = "\n".join(row["test_list"])
    return (
        f"You are an expert Python programmer, and here is your task: {row['text']} "
        f"Your code should pass these tests:\n\n{tests}\n[BEGIN]\n"
    )


def _tests(row: dict) -> str:
    return "\n" + "\n".join(row["test_list"]) + "\n"


def score(
    answers: Sequence[bytes],
    around: Sequence[tuple[str, str]],
    *,
    limits: sandbox.Limits | None = None,
) -> dict:
    """Runs one answer per problem and returns pass@1, with the number of runs by how they ended.

    Args:
      answers: the text between the two texts of `around`.
      around: beginning and end of each program.
      limits: resource limits of each run.
    """
    run = functools.partial(sandbox.run, limits=limits)
    verdicts = [
        run(before + answer.decode("utf-8", "replace") + after)
        for answer, (before, after) in zip(answers, around, strict=True)
    ]
    return {
        "pass_at_1": sum(verdict.passed for verdict in verdicts) / len(verdicts),
        "ended": dict(Counter(verdict.reason for verdict in verdicts)),
    }
