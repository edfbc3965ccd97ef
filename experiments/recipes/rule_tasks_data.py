"""Small tasks with one right answer each, which models of a few million parameters can learn.

    python -m experiments.recipes.rule_tasks_data --out DIR --train 200000 --test 500

writes DIR/train.txt, DIR/valid.txt and DIR/test.jsonl. An example is one line, `question = answer`:

    spell 4213 = four thousand two hundred thirteen
    read six thousand nine = 6009
    date 1987-03-09 = the 9th of March 1987
    sort plum fig kiwi = fig kiwi plum

An example belongs to the test if a hash of its number, date or set of words says so: whatever is
asked in the test, in whichever direction or order, was never trained on. BLEU and pass@1 of models
this small are zero; the exact match of these answers is not, and tells what a faster way to decode
costs in quality.
"""

import argparse
import hashlib
import json
import pathlib
import random
from collections.abc import Iterator
from typing import NamedTuple

TEST_SHARE = 0.1
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
).split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
_MONTHS = (
    "January February March April May June July August September October November December"
).split()
_FRUIT = (
    "apple banana cherry date elder fig grape hazel iris juniper kiwi lemon mango nectar olive "
    "peach quince raisin sloe thyme ugli vanilla walnut yam almond basil clove dill endive fennel"
).split()


class Example(NamedTuple):
    task: str
    question: str  # with the task's name, up to and with " = "
    answer: str


class _Fact(NamedTuple):
    """What an example asks for; `key` is the same in whichever direction or order it asks."""

    key: str
    question: str
    answer: str


def in_words(number: int) -> str:
    """A number below a million in English."""
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")
    if number < 1000:
        hundreds, rest = divmod(number, 100)
        return f"{_SMALL[hundreds]} hundred" + (f" {in_words(rest)}" if rest else "")
    thousands, rest = divmod(number, 1000)
    return f"{in_words(thousands)} thousand" + (f" {in_words(rest)}" if rest else "")


def _number(rng):
    return rng.randrange(10 ** rng.randint(2, 4))


def _spell(rng):
    number = _number(rng)
    return _Fact(str(number), str(number), in_words(number))


def _read(rng):
    number = _number(rng)
    return _Fact(str(number), in_words(number), str(number))


def _date(rng):
    year, month, day = rng.randint(1900, 2099), rng.randint(1, 12), rng.randint(1, 28)
    suffix = "th" if 10 < day < 20 else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    iso = f"{year}-{month:02}-{day:02}"
    return _Fact(iso, iso, f"the {day}{suffix} of {_MONTHS[month - 1]} {year}")


def _sort(rng):
    words = rng.sample(_FRUIT, rng.randint(3, 4))
    in_order = " ".join(sorted(words))
    return _Fact(in_order, " ".join(words), in_order)


TASKS = {"spell": _spell, "read": _read, "date": _date, "sort": _sort}


def is_test(key: str) -> bool:
    """Whether a fact belongs to the test; every other one may be trained on."""
    digest = hashlib.blake2b(key.encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") < TEST_SHARE * 2**32


def examples(*, test: bool, seed: int, task: str | None = None) -> Iterator[Example]:
    """Examples of one side of the split, endlessly; of all tasks in turn, or of one."""
    rng = random.Random(seed)
    while True:
        name = task or rng.choice(list(TASKS))
        fact = TASKS[name](rng)
        if is_test(fact.key) == test:
            yield Example(name, f"{name} {fact.question} = ", fact.answer)


def write(out: pathlib.Path, *, train: int, test: int) -> None:
    """Writes the files; `test` is the number of different questions a task."""
    out.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", train, 0), ("valid", train // 100, 1)):
        stream = examples(test=False, seed=seed)
        with open(out / f"{name}.txt", "w") as file:
            for _ in range(count):
                _, question, answer = next(stream)
                file.write(f"{question}{answer}\n")
    with open(out / "test.jsonl", "w") as file:
        for task in TASKS:
            stream, asked = examples(test=True, seed=2, task=task), set()
            while len(asked) < test:
                example = next(stream)
                if example.question not in asked:
                    asked.add(example.question)
                    file.write(json.dumps(example._asdict()) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--train", type=int, default=200_000)
    parser.add_argument("--test", type=int, default=500)
    options = parser.parse_args()
    write(options.out, train=options.train, test=options.test)


if __name__ == "__main__":
    main()
