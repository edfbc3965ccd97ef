"""Programs written by a model, judged by the tests that they come with: HumanEval and MBPP."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bytelax.measure import files, sandbox
from bytelax.measure.prompted import Example, Prompted

_HUMANEVAL_STOPS = (b"\nclass ", b"\ndef ", b"\n#", b"\nif ", b"\nprint(", b"\n@")
_MBPP_TEST = range(11, 511)  # ids
_MBPP_SOLVED = range(2, 11)  # from the second, as the authors take them


def humaneval(file: Path, *, limit: int | None, new: int) -> Prompted:
    """HumanEval's JSON lines: the body of a function, no examples."""
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
    """MBPP's `mbpp.jsonl`: a whole program, behind examples in the authors' words."""
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
    """pass@1 of one answer each, and how the others ended.

    Args:
      answers: what stands between the two texts of `around`.
      around: beginning and end of each program.
      limits: of each run.
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
