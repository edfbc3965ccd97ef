"""Multiple choice by how likely a model thinks each answer, byte by byte.

    python -m experiments.quality.likelihood.run --data DIR

PIQA and MMLU, and ARC and HellaSwag where the data directory has them (`docs/evaluation.md`), with
the chance of a guess and 95 % bootstrap intervals over questions. A model trained for blocks is
read causally, as a plain one is.
"""

import pathlib

from bytelax import load
from bytelax.measure import evaluate, tasks
from experiments.harness import study

MINUTES = 25
TASKS = ("arc-easy", "arc-challenge", "piqa", "hellaswag", "mmlu")
# Of Fast BLT (arXiv 2605.08044v1), per cent.
PUBLISHED = {
    "BLT 1B": (63.21, 34.94, 75.46, 60.17, 33.90),
    "BLT-D-4 1B": (60.76, 32.96, 74.48, 59.06, 33.60),
    "BLT-D-8 1B": (61.06, 34.16, 73.56, 58.34, 32.28),
    "BLT-D-16 1B": (59.83, 32.88, 72.36, 57.13, 32.09),
    "BLT 3B": (74.33, 45.75, 79.38, 74.98, 41.15),
    "BLT-D-4 3B": (72.39, 41.46, 79.60, 71.86, 39.07),
    "BLT-D-8 3B": (70.95, 41.03, 78.02, 70.56, 38.29),
    "BLT-D-16 3B": (66.89, 40.43, 76.93, 69.12, 37.08),
}


def measure(setting, options):
    model = load(setting["model"], dtype="float32")
    path = pathlib.Path(options.data) / tasks.named(setting["task"]).place
    shots = options.shots if setting["task"] == "mmlu" else None
    task = tasks.read(setting["task"], path, shots=shots, limit=options.limit)
    return evaluate.figures(task, dict(evaluate.answers(model, task)))


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--models", nargs="*", default=("tiny", "tiny-d", "tiny-lm"))
    options.add_argument("--limit", type=int, default=150, help="questions of each task")
    options.add_argument("--shots", type=int, default=0, help="of MMLU")
    options = options.parse_args()
    there = [
        task for task in TASKS if (pathlib.Path(options.data) / tasks.named(task).place).exists()
    ]
    settings = [{"model": model, "task": task} for model in options.models for task in there]
    study.run(
        options.results / "results.json",
        {"limit": options.limit, "shots": options.shots},
        settings[:1] if options.smoke else settings,
        lambda setting: measure(setting, options),
        markdown=markdown,
    )


def markdown(report):
    header = (
        "model", "task", "questions", "accuracy %", "95 %", "by bytes %", "95 %", "chance %",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["model"],
            row["setting"]["task"],
            row["examples"],
            *_share(row["accuracy"]),
            *_share(row["accuracy_normalised"]),
            f"{100 * row['chance']:.1f}",
        )
        for row in report["rows"]
    ]
    published = [(name, *(f"{each:.2f}" for each in row)) for name, row in PUBLISHED.items()]
    missing = [task for task in TASKS if task not in {r["setting"]["task"] for r in report["rows"]}]
    return "\n".join(
        [
            "# Multiple choice by likelihood",
            "",
            f"Up to {report['limit']} questions of each task, evenly spread, MMLU behind "
            f"{report['shots']} solved ones, {study.machine(report)}. By bytes: the answer of the "
            "highest log-probability a byte. An interval that holds the chance of a guess says "
            "that the model is not known to do better than guess.",
            "",
            *study.table(header, rows),
            "",
            *([f"Not there: {', '.join(missing)}.", ""] if missing else []),
            "Published, per cent, with no interval and without saying by which accuracy:",
            "",
            *study.table(("model", *TASKS), published),
            "",
        ]
    )


def _share(share):
    return f"{100 * share['value']:.1f}", f"{100 * share['low']:.1f} to {100 * share['high']:.1f}"


if __name__ == "__main__":
    main()
