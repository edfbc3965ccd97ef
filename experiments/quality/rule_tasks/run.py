"""What fewer passes cost in right answers, on tasks that small models learn.

    python -m experiments.training.rule_tasks.write --out TASKS
    python -m experiments.training.rule_tasks.train task --data TASKS --runs RUNS    and the others
    python -m experiments.quality.rule_tasks.run --tasks TASKS --runs RUNS

Exact match of greedy answers to questions that no model was trained on, against the passes and the
weights that an answer takes: a BLT, and BLT-Ds made from it with blocks of 4, 8, 16 and of all
three sizes, by every unmasking rule. It is figure 1 of Fast BLT (arXiv 2605.08044) in miniature.
Intervals are of 95 %, from resampling questions.
"""

import json
import pathlib

from bytelax import Statistics, generate, load
from experiments.harness import intervals, study

NEW = 96  # bytes; the longest answer has 71
BLOCKS = {
    "task-d4": (4,),
    "task-d4-again": (4,),
    "task-d8": (8,),
    "task-d16": (16,),
    "task-d": (4, 8, 16),
}
RULES = [
    {"unmask": "one-step"},
    *({"unmask": "confidence", "alpha": alpha} for alpha in (0.5, 0.9)),
    *({"unmask": "entropy", "gamma": gamma} for gamma in (0.1, 1.0)),
]
FEW = RULES[0], RULES[1], RULES[4]  # of each block size of a model that learned several
MEANS = ("rounds", "decoder_passes", "global_passes", "bandwidth_gb_with_patcher")


def settings() -> list[dict]:
    """A model with a method and its options, the plain BLT first."""
    rows = [{"model": "task", "method": "ar"}]
    rows += [{"model": "task", "method": "blt-s", "draft_length": k} for k in (4, 8, 16)]
    for model, sizes in BLOCKS.items():
        rows.append({"model": model, "method": "ar"})
        for size in sizes:
            own = {"model": model, "block_size": size}
            rules = RULES if len(sizes) == 1 else FEW
            rows += [own | {"method": "blt-d", **rule} for rule in rules]
            rows.append(own | {"method": "blt-dv", "unmask": "one-step"})
    return rows


def measure(setting: dict, examples: list[dict], runs: pathlib.Path, *, batch: int) -> dict:
    """Answers all questions, `batch` at a time, and the first of them again one by one."""
    how = {name: value for name, value in setting.items() if name != "model"}
    how |= {"max_new_bytes": NEW, "stop": ["\n"]}
    model = load(runs / setting["model"], dtype="float32")
    results = []
    for begin in range(0, len(examples), batch):
        questions = [each["question"] for each in examples[begin : begin + batch]]
        results += generate(model, questions, **how).results
    right = [
        result.bytes.decode(errors="replace") == each["answer"]
        for result, each in zip(results, examples, strict=True)
    ]
    total = Statistics.total([result.stats for result in results])
    tasks = [each["task"] for each in examples]
    return {
        "exact_match": intervals.of_ratio(right, [1] * len(right)),
        "by_task": {
            task: sum(r for r, t in zip(right, tasks, strict=True) if t == task) / tasks.count(task)
            for task in dict.fromkeys(tasks)
        },
        "bytes": total.bytes / len(results),
        **{name: getattr(total, name) / len(results) for name in MEANS},
        "ms_per_answer": milliseconds(model, examples[: min(batch, 16)], how),
    }


def milliseconds(model, examples: list[dict], how: dict) -> float:
    """Mean time of an answer at batch 1, without compiling and prefill."""
    seconds = 0.0
    for each in examples:
        stats = generate(model, [each["question"]], **how).stats
        seconds += stats.seconds - stats.prefill_seconds
    return 1e3 * seconds / len(examples)


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--tasks", type=pathlib.Path, required=True, help="what write.py made")
    options.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    options.add_argument("--batch", type=int, default=64)
    options = options.parse_args()
    lines = (options.tasks / "test.jsonl").read_text().splitlines()
    examples = [json.loads(line) for line in lines]
    chosen = [each for each in settings() if (options.runs / each["model"]).exists()]
    if options.smoke:
        examples, chosen = examples[:: max(1, len(examples) // 2)], chosen[:2]
    study.run(
        options.results / "results.json",
        {"questions": len(examples), "batch": options.batch, "temperature": 0.0},
        chosen,
        lambda setting: measure(setting, examples, options.runs, batch=options.batch),
        markdown=markdown,
    )


def markdown(report):
    header = (
        "model", "method", "exact match, %", *_tasks(report), "decoder passes", "global passes",
        "GB", "ms, batch 1",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["model"],
            named(row["setting"]),
            intervals.shown(percent(row["exact_match"]), ".1f"),
            *(f"{100 * share:.0f}" for share in row["by_task"].values()),
            *(f"{row[name]:.1f}" for name in ("decoder_passes", "global_passes")),
            f"{row['bandwidth_gb_with_patcher']:.3f}",
            f"{row['ms_per_answer']:.1f}",
        )
        for row in report["rows"]
    ]
    return "\n".join([
        "# Right answers against passes", "",
        f"Greedy answers to {report['questions']} questions that no model was trained on, "
        f"{report['batch']} at a time; passes and gigabytes of weights read are means of an "
        f"answer, with its end. Times are of single questions, {study.machine(report)}.", "",
        *study.table(header, rows), "",
    ])  # fmt: skip


def _tasks(report):
    return report["rows"][0]["by_task"] if report["rows"] else ()


def percent(figure):
    return {"value": 100 * figure["value"], "interval": [100 * x for x in figure["interval"]]}


def named(setting: dict) -> str:
    """A method with its options, as a table shows it."""
    options = (f"{k} {v}" for k, v in setting.items() if k not in ("model", "method", "unmask"))
    rule = [setting["unmask"]] if "unmask" in setting else []
    return ", ".join([setting["method"], *options, *rule])


if __name__ == "__main__":
    main()
