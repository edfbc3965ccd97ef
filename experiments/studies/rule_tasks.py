"""What fewer passes cost in right answers, on tasks that small models learn.

A BLT was trained further by the published loss of BLT-D, by ours, and plainly as a control, each
for as many bytes, with three seeds. "From scratch": as published, one block size a model; the base
with the same seed is its control. Exact match of greedy answers to questions that no model has
seen, and the passes and gigabytes of weights that an answer takes (figure 1 of Fast BLT in
miniature). With gamma 0 a pass fills one byte, the most certain one. "Ranked first": how often the
right answer is likelier than three wrong ones that look like it. Models that are not trained yet
are left out.

    python -m experiments.recipes.rule_tasks_data --out TASKS
    python -m experiments.recipes task --data TASKS --runs RUNS
    python -m experiments.recipes task-d --seed 1 --data TASKS --runs RUNS    and the others
    python -m experiments.studies.rule_tasks --tasks TASKS --runs RUNS
"""

import itertools
import json
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bytelax import Result, Statistics, generate, load
from bytelax.scoring import score_continuations
from experiments import evidence, study
from experiments.harness import intervals, published_fast_blt, trained
from experiments.study import Column

NEW = 96  # bytes; the longest answer has fewer
WRONG = 3  # answers beside the right one
SEEDS = (1, 2, 3)
BASE, CONTROL = "task", "task-more"
MODELS = {
    BASE: "the base", CONTROL: "the control", "task-d-paper": "BLT-D, published loss",
    "task-d": "BLT-D, our loss", "task-scratch-d4": "BLT-D from scratch, blocks of 4",
    "task-scratch-d8": "BLT-D from scratch, blocks of 8",
}  # fmt: skip
BLOCK_SIZES = (4, 8, 16)
TRAINED_FOR = {"task-scratch-d4": (4,), "task-scratch-d8": (8,)}  # one block size
ONE_BYTE = {"unmask": "entropy", "gamma": 0.0}  # only the most certain byte fits this bound
ONE_STEP, REFRESH = {"unmask": "one-step"}, {"latent": "refresh"}
# Means of an answer; what is read counts all weights, or those of Fast BLT's formula.
MEANS = (
    "rounds", "decoder_passes", "global_passes", "bandwidth_gb_with_patcher", "bandwidth_gb",
)  # fmt: skip
TRAINED = [
    *((name, 0) for name in (BASE, *TRAINED_FOR)),
    *((name, seed) for seed in SEEDS for name in MODELS),
]
COLUMNS = [
    Column("model", "label"),
    Column("seed", "seed"),
    Column("method", "method"),
    Column("options", "options"),
    Column("exact match", "exact_match", ".1%"),
    Column("by task", "by_task", ".0%"),
    Column("acceptance", "acceptance", ".1%"),
    Column("published", "published_acceptance"),
    Column("decoder passes", "decoder_passes", ".1f"),
    Column("global passes", "global_passes", ".1f"),
    Column("GB", "bandwidth_gb_with_patcher", ".4f"),
    Column("weights read, over plain", "weights_read", ".2f"),
    Column("without the entropy model", "weights_by_formula", ".2f"),
    Column("published", "published_weights"),
    Column("ranked first", "ranked_first", ".1%"),
    Column("bits per byte", "bits_per_byte", ".4f"),
]


def settings(runs: pathlib.Path) -> list[dict]:
    """The models that are there, each with its methods; what takes most passes comes last."""
    found = []
    for name, seed in TRAINED:
        if model := trained.model_of(runs / run_of(name, seed)):
            own = {"model": name, "seed": seed, "trained": trained.digest(model)}
            found += [own | {"method": way, "options": how} for way, how in ways(name)]
    return sorted(found, key=lambda setting: setting["method"] == "blt-d")


def ways(name: str) -> Iterator[tuple[str, dict]]:
    """The methods that are compared on a model, with options: BLT-S on all but the control.

    What verifies runs with a pass a round, and as published, with a second one that renews the
    latent.
    """
    yield "ar", {}
    for size in TRAINED_FOR.get(name, BLOCK_SIZES) if name != CONTROL else ():
        yield from (("blt-s", {"draft_length": size, **how}) for how in ({}, REFRESH))
        if name != BASE:
            quality = (ONE_STEP, *published_fast_blt.rules("blt-d"), ONE_BYTE)
            drafts = (*published_fast_blt.rules("blt-dv"), ONE_STEP | REFRESH)
            yield from (("blt-d", {"block_size": size, **rule}) for rule in quality)
            yield from (("blt-dv", {"block_size": size, **rule}) for rule in drafts)


def run_of(name: str, seed: int) -> str:
    """The directory of a run; one with the seed of its recipe has no number."""
    return f"{name}-{seed}" if seed else name


def measure(setting: dict, examples: list[dict], runs: pathlib.Path, *, batch: int) -> dict:
    """Answers all questions, `batch` at a time; in plain decoding it ranks the answers too."""
    found = trained.model_of(runs / run_of(setting["model"], setting["seed"]))
    model, method = load(found, dtype="float32"), setting["method"]
    questions = [each["question"] for each in examples]
    if setting["trained"] not in _plain:
        _plain[setting["trained"]] = answers(model, questions, "ar", batch=batch)
    plain = _plain[setting["trained"]]
    results = answers(model, questions, method, batch=batch, **setting["options"])
    right = [
        result.bytes.decode(errors="replace") == each["answer"]
        for result, each in zip(results, examples, strict=True)
    ]
    by_task: dict[str, list[bool]] = {}
    for each, example in zip(right, examples, strict=True):
        by_task.setdefault(example["task"], []).append(each)
    rows = [result.stats for result in results]
    total, verified = Statistics.total(rows), method not in ("ar", "blt-d")
    return {
        "label": MODELS[setting["model"]],
        "exact_match": share(right),
        "by_task": {task: np.mean(each) for task, each in by_task.items()},
        "acceptance": evidence.ratio(rows, "accepted", "drafted") if verified else None,
        **published_fast_blt.shown(method, setting["options"]),
        "weights_read": evidence.beside(results, plain, "bandwidth_gb_with_patcher"),
        "weights_by_formula": evidence.beside(results, plain, "bandwidth_gb"),
        "bytes": total.bytes / len(rows),
        **{name: getattr(total, name) / len(rows) for name in MEANS},
        **(likelihoods(model, examples, batch=batch) if method == "ar" else {}),
    }


_plain: dict[str, list[Result]] = {}  # of plain decoding, by the digest of the model


def answers(model, questions: Sequence[str], method: str, *, batch: int, **options) -> list[Result]:
    """Continues all questions to the end of their line."""
    results: list[Result] = []
    for begin in range(0, len(questions), batch):
        results += generate(
            model, questions[begin : begin + batch], method=method, max_new_bytes=NEW, stop=["\n"],
            **options,
        ).results  # fmt: skip
    return results


def likelihoods(model, examples: list[dict], *, batch: int) -> dict:
    """How often the right answer is the likeliest of four, and the bits per byte of right ones."""
    pairs = [
        (each["question"].encode(), answer.encode())
        for each in examples
        for answer in (each["answer"], *each["wrong"])
    ]
    told = score_continuations(model, pairs, batch=batch)
    log_probs = np.array([each.log_prob for each in told]).reshape(len(examples), 1 + WRONG)
    return {
        "ranked_first": share(log_probs.argmax(1) == 0),
        "bits_per_byte": intervals.of_ratio(
            -log_probs[:, 0] / math.log(2), [len(each["answer"].encode()) for each in examples]
        ),
    }


def share(right: Sequence[bool]) -> dict | None:
    """The share of questions that went right, with its interval."""
    return intervals.of_ratio(right, [1] * len(right))


def wrong(example: dict, answers: Sequence[str]) -> list[str]:
    """The wrong answers that differ from the right one in the fewest places.

    Of the answers to other questions of the task; of words to sort, their other orders. No answer
    is the beginning of the right one, which would be as likely or likelier whatever the model.
    """
    right = example["answer"]
    if example["task"] == "sort":
        answers = [" ".join(order) for order in itertools.permutations(right.split())]

    def places(answer):
        return sum(own != other for own, other in itertools.zip_longest(right, answer))

    others = {answer for answer in answers if not right.startswith(answer)}
    return sorted(others, key=lambda answer: (places(answer), answer))[:WRONG]


def read(path: pathlib.Path) -> list[dict]:
    """The questions of the test, each with its wrong answers."""
    examples = [json.loads(line) for line in path.read_text().splitlines()]
    answers: dict[str, list[str]] = {}
    for each in examples:
        answers.setdefault(each["task"], []).append(each["answer"])
    return [each | {"wrong": wrong(each, answers[each["task"]])} for each in examples]


def main():
    options = study.parser(__doc__)
    options.add_argument("--tasks", type=pathlib.Path, required=True, help="of rule_tasks_data")
    options.add_argument("--runs", type=study.directory, required=True, help="of the recipes")
    options.add_argument("--questions", type=int, default=2000, help="evenly of all tasks")
    options.add_argument("--batch", type=int, default=64)
    options = options.parse_args()
    asked = settings(pathlib.Path(options.runs))
    if options.smoke:
        options.questions, asked = 2, asked[:2]
    examples = read(options.tasks / "test.jsonl")
    examples = examples[:: max(1, len(examples) // options.questions)]
    study.run(
        "rule_tasks", options, asked,
        lambda setting: measure(
            setting, examples, pathlib.Path(options.runs), batch=options.batch
        ),
        conditions={"questions": len(examples)}, timed=False,
    )  # fmt: skip


if __name__ == "__main__":
    main()
