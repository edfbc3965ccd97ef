"""What fewer passes cost in right answers, on tasks that small models learn.

    python -m experiments.training.rule_tasks.write --out TASKS
    python -m experiments.training.rule_tasks.train task --data TASKS --runs RUNS    and the others
    python -m experiments.quality.rule_tasks.run --tasks TASKS --runs RUNS

Exact match of greedy answers to questions that no model was trained on, against the passes and the
weights that an answer takes: a BLT, and BLT-Ds made from it with blocks of 4, 8, 16 and of all
three sizes, by every unmasking rule. It is figure 1 of Fast BLT (arXiv 2605.08044) in miniature.
Intervals are of 95 %, from resampling questions.
"""

import itertools
import json
import pathlib

import numpy as np

from bytelax import Statistics, generate, load
from experiments.harness import intervals, published_fast_blt, side_by_side, study

RESULTS = (study.MAIN, "speed")
ALONE = 16  # questions that are answered one by one
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
PLAIN = {"model": "task", "method": "ar"}
FEW = RULES[0], RULES[1], RULES[4]  # of each block size of a model that learned several
MEANS = ("rounds", "decoder_passes", "global_passes", "bandwidth_gb_with_patcher")


def timed() -> list[dict]:
    """The settings whose time is taken: of each block size one of each kind."""
    rules = ({"unmask": "confidence", "alpha": 0.5}, {"unmask": "entropy", "gamma": 1.0})
    of_blocks = [
        [{"model": model, "block_size": size, "method": "blt-d", **rule} for rule in rules]
        + [{"model": model, "block_size": size, "method": "blt-dv", "unmask": "one-step"}]
        for model, size in (("task-d4-again", 4), ("task-d8", 8), ("task-d16", 16))
    ]
    drafting = [{"model": "task", "method": "blt-s", "draft_length": k} for k in (4, 8)]
    return [*drafting, *itertools.chain(*of_blocks)]


def settings() -> list[dict]:
    """A model with a method and its options, the plain BLT first."""
    rows = [PLAIN]
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
    """Answers all questions, `batch` at a time."""
    how = options_of(setting)
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
        "acceptance": intervals.of_ratio(
            *([getattr(each.stats, name) for each in results] for name in ("accepted", "drafted"))
        ),
        "bytes": total.bytes / len(results),
        **{name: getattr(total, name) / len(results) for name in MEANS},
    }


def speed(setting: dict, examples: list[dict], runs: pathlib.Path, *, repeats: int) -> dict:
    """Time of an answer at batch 1, in turns with plain decoding of the BLT."""
    plain, own = (load(runs / name, dtype="float32") for name in (PLAIN["model"], setting["model"]))
    seconds = []
    for _ in range(repeats + 1):
        seconds.append([decoding(plain, PLAIN, examples), decoding(own, setting, examples)])
    times = np.array(seconds[1:]) / len(examples)  # the first compiles
    ratios = times[:, 0] / times[:, 1]
    return {
        "ms": 1e3 * np.median(times[:, 1]), "plain_ms": 1e3 * np.median(times[:, 0]),
        "speed": np.median(ratios), "speed_range": [ratios.min(), ratios.max()],
    }  # fmt: skip


def decoding(model, setting: dict, examples: list[dict]) -> float:
    """Seconds that answers take one by one, without compiling and prefill."""
    how = options_of(setting)
    answered = [generate(model, [each["question"]], **how).stats for each in examples]
    return sum(stats.seconds - stats.prefill_seconds for stats in answered)


def options_of(setting: dict) -> dict:
    """Options of `generate`."""
    chosen = {name: value for name, value in setting.items() if name != "model"}
    return chosen | {"max_new_bytes": NEW, "stop": ["\n"]}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--tasks", type=pathlib.Path, required=True, help="what write.py made")
    options.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    options.add_argument("--batch", type=int, default=64)
    options.add_argument("--repeats", type=int, default=3, help="of what is timed")
    options = options.parse_args()
    lines = (options.tasks / "test.jsonl").read_text().splitlines()
    examples = [json.loads(line) for line in lines]
    there = [each for each in settings() if (options.runs / each["model"]).exists()]
    alone = [each for each in timed() if (options.runs / each["model"]).exists()]
    if options.smoke:
        examples = examples[:: max(1, len(examples) // 2)]
        there, alone, options.repeats = there[:2], alone[:1], 1
    study.run(
        options.results / "results.json",
        {"questions": len(examples), "batch": options.batch, "temperature": 0.0},
        there,
        lambda setting: measure(setting, examples, options.runs, batch=options.batch),
        markdown=markdown,
    )
    few = examples[:: max(1, len(examples) // ALONE)][:ALONE]
    study.run(
        options.results / "speed.json",
        {"questions": len(few), "repeats": options.repeats, "temperature": 0.0},
        alone,
        lambda setting: speed(setting, few, options.runs, repeats=options.repeats),
        markdown=speed_table,
    )


def speed_table(report):
    rows = [
        (
            row["setting"]["model"], named(row["setting"]), f"{row['ms']:.1f}",
            f"{row['plain_ms']:.1f}", f"{row['speed']:.2f}",
            "{:.2f} to {:.2f}".format(*row["speed_range"]),
        )
        for row in report["rows"]
    ]  # fmt: skip
    header = ("model", "method", "ms an answer", "plain decoding of the BLT, ms", "speed", "range")
    return "\n".join([
        "# The time of an answer", "",
        f"{report['questions']} questions one by one, in turns with plain decoding of the BLT; "
        f"medians of {report['repeats']} runs, without the time that the question takes, "
        f"{study.machine(report)}.", "",
        *study.table(header, rows), "",
    ])  # fmt: skip


def markdown(report):
    header = (
        "model", "method", "exact match, %", *_tasks(report), "acceptance, %", "published",
        "decoder passes", "global passes", "GB",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["model"],
            named(row["setting"]),
            intervals.shown(row["exact_match"], ".1f", times=100),
            *(f"{100 * share:.0f}" for share in row["by_task"].values()),
            # What is not verified is kept.
            None
            if row["setting"]["method"] == "blt-d"
            else intervals.shown(row["acceptance"], ".1f", times=100),
            published_fast_blt.shown(row["setting"]["method"], row["setting"]),
            *(f"{row[name]:.1f}" for name in ("decoder_passes", "global_passes")),
            f"{row['bandwidth_gb_with_patcher']:.4f}",
        )
        for row in report["rows"]
    ]
    return "\n".join([
        "# Right answers against passes", "",
        f"Greedy answers to {report['questions']} questions that no model was trained on, "
        f"{report['batch']} at a time; passes and gigabytes of weights read are means of an "
        "answer, with its end. [speed.md](speed.md) has times.", "",
        published_fast_blt.LEGEND, "",
        *study.table(header, rows), "",
    ])  # fmt: skip


def _tasks(report):
    return report["rows"][0]["by_task"] if report["rows"] else ()


def named(setting: dict) -> str:
    """A method with its options, as a table shows it."""
    options = {k: v for k, v in setting.items() if k not in ("model", "method", "unmask")}
    told = setting["method"], side_by_side.named(options), setting.get("unmask")
    return ", ".join(filter(None, told))


if __name__ == "__main__":
    main()
