"""Drafters of a frozen BLT side by side: bytes kept a round, weights read and measured speed.

    python -m experiments.training.drafters.train heads --data DIR --runs RUNS
    python -m experiments.training.drafters.train table --data DIR --runs RUNS
    python -m experiments.speed.drafters.run --data DIR --heads RUNS/heads --table RUNS/table

64 held-out prompts of five genres, at temperature 0 and 1, in batches of 1 and 16. Each method
alternates with plain decoding (W = 1, with caches) in one process. Intervals are over prompts.
Continuations that end in a loop are counted, and left out of a column of their own.
`teacher_forced.json` has what the heads say of real text, by place in the draft.
"""

import pathlib

from bytelax import load
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import (
    evidence,
    intervals,
    published_fast_blt,
    recipes,
    study,
    teacher_forced,
)
from experiments.harness.bundled_data import sources
from experiments.harness.one_figure import Setting, Timed

RESULTS = (study.MAIN, "teacher_forced")
TEMPERATURES, BATCHES = (0.0, 1.0), (1, 16)
WINDOW, ROWS, PATCHES = 256, 16, 96  # of the teacher-forced texts, as in training
# Name, method, options, and the model: the BLT, with heads, or the BLT-D with a table.
BLT, HEADS, TABLE = "blt", "blt with heads", "blt-d with table"
SETTINGS = (
    ("blt-s", "blt-s", {"draft_length": 8}, BLT),
    ("blt-s, nested over lookup", "blt-s", {"draft_length": 8, "draft_with": "lookup"}, BLT),
    ("blt-s, nested over heads", "blt-s", {"draft_length": 8, "draft_with": "medusa"}, HEADS),
    ("sequential", "eagle", {"draft_length": 8}, HEADS),
    ("sequential, confident", "eagle", {"draft_length": 8, "min_survival": 0.3}, HEADS),
    ("block", "dflash", {}, HEADS),
    ("block, confident", "dflash", {"min_survival": 0.3}, HEADS),
    ("multi-byte", "medusa", {}, HEADS),
    ("draft model", "draft-model", {"draft_length": 4}, BLT),
    ("lookup", "lookup", {"draft_length": 8}, BLT),
    # As many decoder passes as a block that is filled in one step.
    ("blt-s of the BLT-D, 1 byte", "blt-s", {"draft_length": 1}, TABLE),
    ("blt-dv", "blt-dv", {"block_size": 8, "table": False}, TABLE),
    ("blt-dv, table", "blt-dv", {"block_size": 8, "table": True}, TABLE),
)


def main():
    options = study.parser(__doc__, __file__, model="tiny")
    options.add_argument("--heads", type=pathlib.Path, help="a run of heads for --model")
    options.add_argument("--d-model", default="tiny-d", help="a BLT-D")
    options.add_argument("--table", type=pathlib.Path, help="a run of a block table for --d-model")
    options.add_argument("--draft-model", default="tiny-draft")
    evidence.add_options(options, new=128, repeats=3)
    options.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    options.add_argument("--only", nargs="*", default=[name for name, *_ in SETTINGS])
    options.add_argument("--windows", type=int, default=32, help="batches of teacher-forced text")
    options = evidence.parsed(options)
    sizes = options.batch
    if options.smoke:
        options.windows, sizes = 1, [1]
    models = {
        BLT: lambda: load(options.model, dtype="float32"),
        HEADS: lambda: load(options.model, dtype="float32", heads=options.heads / "heads"),
        TABLE: lambda: load(options.d_model, dtype="float32", heads=options.table / "heads"),
    }
    texts = evidence.prompts(options)
    runs = {HEADS: options.heads, TABLE: options.table}
    trained = {kind: recipes.trained_on(run) for kind, run in runs.items() if run}
    # What drafters have learned from belongs to a setting: others are not measured again.
    settings = [
        {
            "name": name,
            "temperature": temperature,
            "batch": batch,
            "model": of,
            "trained": trained.get(of),
        }
        for batch in sizes
        for temperature in TEMPERATURES
        for name, _, _, of in SETTINGS
        if name in options.only and (of == BLT or of in trained)
    ]
    conditions = {
        "model": options.model, "d_model": options.d_model, "draft_model": options.draft_model,
        "prompts": len(texts), "prompt_bytes": options.context, "new": options.new,
        "repeats": options.repeats, "split": options.split,
    }  # fmt: skip
    study.run(
        options.results / "results.json",
        conditions,
        settings[:1] if options.smoke else settings,
        lambda setting: measure(models, texts, setting, options),
        markdown=markdown,
    )
    study.run(
        options.results / "teacher_forced.json",
        {"text_bytes": options.windows * WINDOW * ROWS},
        [{"model": kind, "trained": seen} for kind, seen in trained.items()],
        lambda setting: forced(models[setting["model"]](), options),
        markdown=forced_table,
    )


def measure(models, texts, setting, options):
    """A method's figures beside those of plain decoding, in alternating runs."""
    method, chosen, of = next(rest for name, *rest in SETTINGS if name == setting["name"])
    if method == "draft-model":
        chosen = chosen | {"draft_model": load(options.draft_model, dtype="float32")}
    plain, own = timing.in_turns(
        models[of](),
        [text for _, text in texts],
        [PLAIN, Contestant(method, chosen)],
        new=options.new,
        repeats=options.repeats,
        batch=setting["batch"],
        temperature=setting["temperature"],
    )
    beside = timing.beside(plain, own)
    return {
        "method": method,
        "options": {name: x for name, x in chosen.items() if name != "draft_model"},
        "plain": evidence.figures(continued(plain)),
        **evidence.figures(continued(own)),
        "speed": beside.decode_speed.median,
        "speed_range": [beside.decode_speed.lowest, beside.decode_speed.highest],
        "same_outputs": beside.same_outputs,
        "by_genre": evidence.by_genre(continued(own), [genre for genre, _ in texts]),
    }


def continued(runs):
    """The continuations of all prompts in the last run."""
    return [result for output in runs.outputs for result in output.results]


def forced(model, options):
    """Agreement and overlap of the heads by place in the draft, and the size of each."""
    batches = teacher_forced.held_out(
        sources(options.data), options.windows, window=WINDOW, batch=ROWS
    )
    return {"heads": teacher_forced.of_heads(model, batches, max_patches=PATCHES)}


def speeds(report):
    """Of the bundled models, with the draft layer that ships with `tiny`."""
    for row in report["rows"]:
        found = row["setting"]
        if "method" in row and (found["model"] == BLT or row["method"] == "eagle"):
            setting = Setting.of(
                report["model"], row["method"], row["options"], found["temperature"],
                found["batch"],
            )  # fmt: skip
            yield Timed(setting, row["speed"], *row["speed_range"])


def markdown(report):
    header = (
        "method", "T", "batch", "bytes per round", "without loops", "loops", "acceptance, %",
        "published", "global passes per byte", "weights read", "speed", "range", "same output",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["name"], f"{row['setting']['temperature']:g}", row["setting"]["batch"],
            intervals.shown(row["bytes_per_round"]),
            intervals.shown(row["bytes_per_round_without_loops"]),
            f"{row['loops']}/{report['prompts']}",
            intervals.shown(row["acceptance"], ".1f", times=100),
            published_fast_blt.shown(row["method"], row["options"]),
            f"{row['global_passes_per_byte']['value']:.3f} "
            f"({row['plain']['global_passes_per_byte']['value']:.3f})",
            f"{row['gb_per_byte']['value'] / row['plain']['gb_per_byte']['value']:.2f}",
            f"{row['speed']:.2f}",
            "{:.2f} to {:.2f}".format(*row["speed_range"]),
            f"{row['same_outputs']}/{report['prompts']}" if not row["setting"]["temperature"]
            else None,
        )
        for row in report["rows"]
    ]  # fmt: skip
    return "\n".join(
        [
            "# Drafters for a frozen BLT",
            "",
            *evidence.warning(report),
            f"`{report['model']}` (`blt-dv`: `{report['d_model']}`), {report['prompts']} held-out "
            f"prompts of {report['prompt_bytes']} bytes over five genres, {report['new']} new "
            f"bytes, {study.machine(report)}. {said_of_training(report)} In brackets 95 % "
            "intervals over prompts; behind global passes those of plain decoding. Weights read: "
            "those of a byte, beside plain decoding, by the formula of Fast BLT with the entropy "
            "model and the drafter's own network. Speed: median of "
            f"{report['repeats']} ratios to plain decoding (W = 1, with caches) beside it, without "
            "the prompt. A continuation loops if its end repeats a stretch three times.",
            "",
            published_fast_blt.LEGEND,
            "",
            *study.table(header, rows),
            "",
        ]
    )


def forced_table(report):
    rows = [
        (row["setting"]["model"], kind, what,
         ", ".join(f"{100 * share:.1f}" for share in found[what]))
        for row in report["rows"]
        for kind, found in row["heads"].items()
        for what in ("agreed", "overlap")
    ]  # fmt: skip
    return "\n".join(
        [
            "# What the heads say of real text",
            "",
            f"On {report['text_bytes']:,} bytes of held-out text, given the text before: how often "
            "the head and the model have the same likeliest byte, and the probability at "
            "temperature 1 that a byte sampled from the head is accepted, in per cent. "
            f"{said_of_training(report)}",
            "",
            *study.table(("model", "head", "figure", "byte 1, 2, ... of the draft"), rows),
            "",
        ]
    )


def said_of_training(report):
    """What the drafters have learned from, in a sentence for each model that has some."""
    seen = {row["setting"]["model"]: row["setting"]["trained"] for row in report["rows"]}
    return " ".join(
        f"The drafters of the {kind} have seen {about['bytes'] / 1e6:.1f} MB "
        f"({about['steps']} steps, loss {about['loss_of']})."
        for kind, about in seen.items()
        if about
    )


if __name__ == "__main__":
    main()
