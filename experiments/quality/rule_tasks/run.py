"""What fewer passes cost in right answers, on tasks that small models learn.

    python -m experiments.training.rule_tasks.write --out TASKS
    python -m experiments.training.rule_tasks.train task --data TASKS --runs RUNS    and the others
    python -m experiments.quality.rule_tasks.run --tasks TASKS --runs RUNS

A BLT was trained on by the published loss of BLT-D, by ours, and plainly as their control, each for
as many bytes. Exact match of greedy answers to questions that no model was trained on, by every
unmasking rule, against the passes and the weights that an answer takes: figure 1 of Fast BLT (arXiv
2605.08044) in miniature. And likelihoods: how often each model ranks the right answer before three
wrong ones that look like it. Models that are not trained yet are left out; rows of models that are
no longer here stay, and a model that was trained on is measured anew.
"""

import itertools
import json
import math
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from bytelax import load
from bytelax.scoring import score_continuations
from experiments.harness import intervals, published_fast_blt, side_by_side, study, trained

NEW = 96  # bytes; the longest answer has fewer
WRONG = 3  # answers beside the right one
GATE = 3.0  # points that one byte per pass may be behind plain decoding of the control
SEEDS = (1, 2, 3)
BASE, CONTROL = "task", "task-more"
MODELS = dict(zip((BASE, CONTROL, "task-d-paper", "task-d"), trained.LABELS, strict=True))
TRAINED = [(BASE, 0), *((name, seed) for seed in SEEDS for name in MODELS if name != BASE)]
RULES = [
    {"unmask": "one-step"},
    {"unmask": "confidence", "alpha": 0.9},
    {"unmask": "entropy", "gamma": 1.0},
    trained.ONE_BYTE,
]


def settings(weights: dict[str, str]) -> Iterator[dict]:
    """A model with a method and its options.

    Args:
      weights: digests of the models that are there, by the names of their runs.
    """
    for name, seed in TRAINED:
        if run_of(name, seed) not in weights:
            continue
        own = {"model": name, "seed": seed, "weights": weights[run_of(name, seed)]}
        yield from (own | way for way in trained.ways(MODELS[name], RULES))


def run_of(name: str, seed: int) -> str:
    """What `train.py` calls the run; the base has one seed and no number."""
    return f"{name}-{seed}" if seed else name


def measure(setting: dict, examples: list[dict], runs: pathlib.Path, *, batch: int) -> dict:
    """Answers all questions, `batch` at a time; in plain decoding it ranks the answers too."""
    own = {"model", "seed", "weights"}
    how = {name: value for name, value in setting.items() if name not in own}
    model = load(
        trained.model_of(runs / run_of(setting["model"], setting["seed"])), dtype="float32"
    )
    results, figures = trained.answers(
        model, [each["question"] for each in examples], how, new=NEW, batch=batch
    )
    right = [
        result.bytes.decode(errors="replace") == each["answer"]
        for result, each in zip(results, examples, strict=True)
    ]
    return {
        "exact_match": share(right, examples),
        **figures,
        **(likelihoods(model, examples, batch=batch) if setting["method"] == "ar" else {}),
    }


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
        "ranked_first": share(log_probs.argmax(1) == 0, examples),
        "bits_per_byte": intervals.of_ratio(
            -log_probs[:, 0] / math.log(2), [len(each["answer"].encode()) for each in examples]
        ),
    }


def share(right: Sequence[bool], examples: list[dict]) -> dict:
    """The share of questions that went right, with its interval, and that of each task."""
    of_task: dict[str, list[bool]] = {}
    for each, example in zip(right, examples, strict=True):
        of_task.setdefault(example["task"], []).append(each)
    by_task = {task: np.mean(each) for task, each in of_task.items()}
    return intervals.of_ratio(right, [1] * len(right)) | {"by_task": by_task}


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
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--tasks", type=pathlib.Path, required=True, help="what write.py made")
    options.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    options.add_argument("--batch", type=int, default=64)
    options = options.parse_args()
    examples = read(options.tasks / "test.jsonl")
    results = options.results / "results.json"
    before = json.loads(results.read_text())["rows"] if results.exists() else []
    measured = {run_of(own["model"], own["seed"]): own["weights"]
                for own in (row["setting"] for row in before)}  # fmt: skip
    runs = itertools.starmap(run_of, TRAINED)
    asked = list(settings(trained.digests(options.runs, runs, measured)))
    if options.smoke:
        examples, asked = examples[:: max(1, len(examples) // 2)], asked[:2]
    study.run(
        results,
        {"questions": len(examples), "batch": options.batch, "temperature": 0.0},
        asked,
        lambda setting: measure(setting, examples, options.runs, batch=options.batch),
        markdown=markdown,
        timed=False,
    )


def over_seeds(report: dict) -> list[tuple[dict, list[dict]]]:
    """Rows that differ in the seed of their model alone, with the setting that they share."""
    found: dict[str, list[dict]] = {}
    for row in report["rows"]:
        shared = {k: v for k, v in row["setting"].items() if k not in ("seed", "weights")}
        found.setdefault(json.dumps(shared), []).append(row)
    return [(json.loads(setting), rows) for setting, rows in found.items()]


def shown(rows: Sequence[dict], name: str, form: str = ".1f", *, times: float = 100) -> str:
    """A figure over seeds; in per cent where nothing else is said."""
    return intervals.shown(intervals.of_seeds([row[name] for row in rows]), form, times=times)


def markdown(report):
    tasks = list(report["rows"][0]["exact_match"]["by_task"]) if report["rows"] else []

    def of_tasks(rows, name):
        return (
            f"{100 * np.mean([row[name]['by_task'][each] for row in rows]):.0f}" for each in tasks
        )

    answers = [
        (
            MODELS[setting["model"]], named(setting), len(rows), shown(rows, "exact_match"),
            *of_tasks(rows, "exact_match"),
            # What is not verified is kept.
            None if setting["method"] in ("ar", "blt-d") else shown(rows, "acceptance"),
            published_fast_blt.shown(setting["method"], setting),
            *(f"{mean(rows, name):.1f}" for name in ("decoder_passes", "global_passes")),
            f"{mean(rows, 'bandwidth_gb_with_patcher'):.4f}",
        )
        for setting, rows in over_seeds(report)
    ]  # fmt: skip
    ranked = [
        (
            MODELS[setting["model"]], len(rows), shown(rows, "ranked_first"),
            *of_tasks(rows, "ranked_first"), shown(rows, "bits_per_byte", ".4f", times=1),
        )
        for setting, rows in over_seeds(report)
        if setting["method"] == "ar"
    ]  # fmt: skip
    return "\n".join([
        "# Right answers against passes", "",
        f"Greedy answers to {report['questions']} questions that no model was trained on, "
        f"{report['batch']} at a time, {study.machine(report)}. Nothing is timed: models this "
        "small tell nothing of times.", "",
        f"- All have the same base. Of {len(SEEDS)} seeds the column tells how many are trained.",
        "- In brackets: of several seeds the lowest and the highest beside their mean; of one, the "
        "95 % interval from resampling questions.",
        "- Passes and gigabytes of weights read: means of an answer, with its end. With gamma 0 a "
        "pass fills one byte, the most certain one.",
        published_fast_blt.LEGEND, "",
        *study.table(
            ("model", "method", "seeds", "exact match, %", *tasks, "acceptance, %", "published",
             "decoder passes", "global passes", "GB"),
            answers,
        ), "",
        "## One byte per pass", "",
        f"The gate: at most {GATE:g} points behind plain decoding of the control, in each of "
        f"{len(SEEDS)} seeds. Points behind, by seed:", "",
        *study.table(
            ("model", "block size", "behind the control", "behind its own plain decoding", "holds"),
            list(gate(report)),
        ), "",
        "## Likelihoods", "",
        f"How often the right answer is the likeliest of {1 + WRONG}, read causally. The wrong "
        "ones are those that differ from it in the fewest places: answers to other questions of "
        "the task, or other orders of the words. Bits per byte are of the right answers, without "
        "their ends.", "",
        *study.table(("model", "seeds", "ranked first, %", *tasks, "bits per byte"), ranked), "",
    ])  # fmt: skip


def mean(rows: Sequence[dict], name: str) -> float:
    return float(np.mean([row[name] for row in rows]))


def gate(report: dict) -> Iterator[tuple]:
    """What one byte per pass costs each BLT-D by block size, and whether it passes."""
    plain = {
        (row["setting"]["model"], row["setting"]["seed"]): row["exact_match"]["value"]
        for row in report["rows"]
        if row["setting"]["method"] == "ar"
    }
    for setting, rows in over_seeds(report):
        if not trained.ONE_BYTE.items() <= setting.items():
            continue
        control, itself = (
            [
                100 * (plain[key] - row["exact_match"]["value"])
                for row in rows
                if (key := (model, row["setting"]["seed"])) in plain
            ]
            for model in (CONTROL, setting["model"])
        )
        passed = "yes" if len(control) == len(SEEDS) else f"in {len(control)} of {len(SEEDS)} seeds"
        yield (
            MODELS[setting["model"]], setting["block_size"],
            *(", ".join(f"{points:.1f}" for points in each) for each in (control, itself)),
            "**no**" if max(control, default=0.0) > GATE else passed,
        )  # fmt: skip


def named(setting: dict) -> str:
    """A method with its options, as a table shows it."""
    options = {k: v for k, v in setting.items() if k not in ("model", "method", "unmask")}
    told = setting["method"], side_by_side.named(options), setting.get("unmask")
    return ", ".join(filter(None, told))


if __name__ == "__main__":
    main()
