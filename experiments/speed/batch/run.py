"""What methods are worth in batches of 16 and 64, beside the best plain decoding at that size.

    python -m experiments.speed.batch.run --data DIR

The texts are the same at every size: 64 held-out prompts of five genres, cut into batches. In a
batch some row closes a patch at nearly every byte, so plain decoding of a BLT reads its global
weights nearly every time; rows that wait for one another (`synchronous`) share that pass. Both are
run, and the faster one is the baseline. Beside each measured speed stands what a roofline says:
every pass takes as long as reading its weights and caches, or as multiplying them, on this machine.
Drafts on predicted latents in batches are in the study of latents.
"""

import statistics
from typing import NamedTuple

from bytelax import load
from bytelax.measure import timing
from bytelax.measure.timing import Contestant
from experiments.harness import (
    evidence,
    floor,
    intervals,
    published_fast_blt,
    roofline,
    speed_table,
    study,
)
from experiments.harness.one_figure import Setting, Timed
from experiments.speed.batch import predicted

MINUTES = 11
BATCHES, PREDICTED = (16, 64), (1, 2, 4, 8, 16, 32, 64)
ALONE = {"plain": Contestant("ar", {})}
PLAIN = ALONE | {"plain, all wait": Contestant("ar", {"synchronous": 1.0})}
BLT = {
    "blt-s 8": Contestant("blt-s", {"draft_length": 8}),
    "eagle 8": Contestant("eagle", {"draft_length": 8}),
}
BLT_D = {
    "blt-dv 8, one step": Contestant("blt-dv", {"block_size": 8}),
    "blt-d 16, one step": Contestant("blt-d", {"block_size": 16, "unmask": "one-step"}),
}
BYTE_LM = {
    "early-exit 6, 1 byte": Contestant("early-exit", {"exit_layer": 6, "draft_length": 1}),
    "two-byte": Contestant("two-byte", {}),
    "medusa": Contestant("medusa", {}),
    "eagle 4": Contestant("eagle", {"draft_length": 4}),
    "draft-model 4": Contestant("draft-model", {"draft_length": 4}),
}
DRAFTING = BLT | BLT_D | BYTE_LM


class Part(NamedTuple):
    """What is measured of a model: at which temperature, and which methods."""

    model: str
    temperature: float
    contestants: dict[str, Contestant]


PARTS = tuple(
    Part(model, temperature, contestants)
    for model, contestants in (
        ("tiny", PLAIN | BLT), ("tiny-d", PLAIN | BLT_D), ("tiny-lm", ALONE | BYTE_LM),
    )
    for temperature in (0.0, 1.0)
)  # fmt: skip


def measure(model, texts, contestants, machine, how):
    """All contestants in turns, at one batch size."""
    runs = timing.in_turns(model, texts, list(contestants.values()), **how)
    runs = dict(zip(contestants, runs, strict=True))
    best = min(
        (name for name in PLAIN if name in runs),
        key=lambda name: statistics.median(runs[name].decode_seconds),
    )
    least = {
        name: roofline.seconds(
            model, contestants[name], own.stats, machine, rows=how["batch"], context=len(texts[0])
        )
        for name, own in runs.items()
    }
    return {
        "best_plain": best,
        "methods": {
            name: beside(runs[best], own, least[best], least[name], texts=len(texts), how=how)
            for name, own in runs.items()
        },
    }


def beside(plain, own, plain_least, least, *, texts, how):
    """Figures of a method: over all prompts, and its speed beside the best plain decoding."""
    timed = timing.beside(plain, own)
    speeds = timing.figures(timed)
    counted = evidence.figures([result for output in own.outputs for result in output.results])
    # Of the whole batch: what a row's own counts do not say.
    shared = texts / how["batch"] * how["new"]
    return {
        name: counted[name]
        for name in ("bytes_per_round", "bytes_per_round_without_loops", "loops", "acceptance",
                     "bytes_per_patch")
    } | {
        name: speeds[name]
        for name in ("decode_bytes_per_second", "decode_speed", "decode_speed_range",
                     "same_outputs", "lossless")
    } | {
        "windows_per_byte": own.stats.batch_windows / shared,
        "global_passes_per_byte": own.stats.global_chunks / shared,
        "roofline_speed": plain_least / least,
        "over_roofline": timed.decode_seconds / least,
    }  # fmt: skip


def with_draft_model(contestants, small):
    """The same, with the model that `draft-model` drafts with."""
    return {
        name: Contestant(method, settings | {"draft_model": small})
        if method == "draft-model"
        else Contestant(method, settings)
        for name, (method, settings) in contestants.items()
    }


def few(contestants):
    """Of the contestants of a trial run, the first that drafts, beside plain decoding."""
    drafting = next(name for name in contestants if name not in PLAIN)
    return {n: c for n, c in contestants.items() if n in PLAIN or n == drafting}


def main():
    options = study.parser(__doc__, __file__, model=None)
    evidence.add_options(options, new=48)
    options = evidence.parsed(options)
    if options.smoke:
        options.prompts = 4  # whole batches
    texts = [text for _, text in evidence.prompts(options)]
    how = {"new": options.new, "repeats": options.repeats}
    small = load("tiny-draft", dtype="float32")
    models = {name: load(name, dtype="float32") for name in {part.model for part in PARTS}}
    machine = floor.measured(megabytes=16 if options.smoke else 512)
    parts = {(part.model, part.temperature): part for part in PARTS}

    def row(setting):
        part = parts[setting["model"], setting["temperature"]]
        contestants = with_draft_model(part.contestants, small)
        if options.smoke:
            contestants = few(contestants)
        chosen = {name: setting[name] for name in ("batch", "temperature")}
        return measure(models[part.model], texts, contestants, machine, how | chosen)

    settings = [
        {"model": part.model, "temperature": part.temperature, "batch": batch}
        for part in PARTS
        for batch in ((2,) if options.smoke else BATCHES)
    ]
    study.run(
        options.results / "results.json",
        {
            "prompts": len(texts),
            "prompt_bytes": options.context,
            "split": options.split,
            **how,
        },
        settings[:1] if options.smoke else settings,
        row,
        markdown=markdown,
    )


def speeds(report):
    """Beside plain decoding whose rows do not wait, as other studies have them."""
    for row in report["rows"]:
        found = row["setting"]
        if row["best_plain"] == "plain":
            for name, (method, options) in DRAFTING.items():
                if name in row["methods"]:
                    own = row["methods"][name]
                    setting = Setting.of(
                        found["model"], method, options, found["temperature"], found["batch"]
                    )
                    yield Timed(setting, own["decode_speed"], *own["decode_speed_range"])


def headline(report):
    """At each size the fastest lossless method beside the best plain decoding."""
    for row in report["rows"]:
        setting, methods = row["setting"], row["methods"]
        drafting = {n: m for n, m in methods.items() if m["lossless"] and n[:5] != "plain"}
        name = max(drafting, key=lambda n: drafting[n]["decode_speed"])
        yield speed_table.row(
            report, methods[name], model=setting["model"], method=name,
            baseline=row["best_plain"], batch=setting["batch"], context=report["prompt_bytes"],
            temperature=setting["temperature"],
        )  # fmt: skip


def markdown(report):
    lines = [
        "# Methods in batches",
        "",
        *evidence.warning(report),
        f"The same texts at every size, cut into batches: {evidence.conditions(report)}",
        "",
        *evidence.LEGEND,
        evidence.latents(),
        published_fast_blt.LEGEND,
        f"- Speed: median of {report['repeats']} ratios to the best plain decoding at the same "
        "batch size, in turns in one process, without the prompts; in brackets their range. Behind "
        "a slash: what the roofline of this machine says of the same passes.",
        "- The end of a text cuts its last round short.",
    ]
    kinds = [(row["setting"]["model"], row["setting"]["temperature"]) for row in report["rows"]]
    for model, temperature in dict.fromkeys(kinds):
        rows = [
            row
            for row, kind in zip(report["rows"], kinds, strict=True)
            if kind == (model, temperature)
        ]
        lines += ["", f"## `{model}`, temperature {temperature:g}", ""]
        lines += [*verdicts(rows), "", *_plain_table(rows), ""]
        lines += _speed_table(rows, report["prompts"])
    lines += [
        "",
        "## What was predicted",
        "",
        "A roofline of an H200 (4.3 TB/s, 700 TFLOP/s in bfloat16, 67 in float32, in which the "
        f"entropy model runs) at the 1B shape, a context of {predicted.CONTEXT} bytes, "
        f"{predicted.BYTES_PER_PATCH} bytes per patch, with the acceptance published for 3B, "
        "beside the better of plain decoding with rows that wait and without. Unlike a token "
        "model's the speed should rise to a batch of 8, and be above 2 at 64. A first version, "
        "with the entropy model in bfloat16 and no encoder in the drafts of BLT-S, had its top at "
        "16.",
        "",
        *study.table(
            ("method", *(f"batch {size}" for size in PREDICTED)),
            [
                (name, *(f"{speed:.1f}" for speed in speeds))
                for name, speeds in predicted.speeds(PREDICTED).items()
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def verdicts(rows):
    """A sentence for each method: at which sizes it is slower than plain decoding."""
    for name in _methods(rows):
        sizes = {"slower": [], "faster": [], "neither": []}
        for row in rows:
            method = row["methods"][name]
            low, high = method["decode_speed_range"]
            kind = "slower" if high < 1 else "faster" if low > 1 else "neither"
            sizes[kind].append(f"{row['setting']['batch']} ({method['decode_speed']:.2f})")
        said = {
            "slower": "**slower** than the best plain decoding at batches of ",
            "faster": "faster at ",
            "neither": "within the range of repeats at ",
        }
        parts = [said[kind] + ", ".join(found) for kind, found in sizes.items() if found]
        yield f"- `{name}` is {'; '.join(parts)}."


def _methods(rows):
    return [name for name in rows[0]["methods"] if name not in PLAIN]


def _plain_table(rows):
    """Plain decoding: what is fastest, and how often the batch ran the global transformer."""
    names = [name for name in PLAIN if any(name in row["methods"] for row in rows)]
    yield from study.table(
        ("batch", "best plain", "bytes per patch",
         *(f"{name}: {what}" for name in names
           for what in ("bytes/s", "windows per byte", "global passes per byte"))),
        [
            (
                row["setting"]["batch"],
                row["best_plain"],
                _of(row["methods"]["plain"], "bytes_per_patch", ".2f"),
                *(
                    _of(row["methods"].get(name), figure, form)
                    for name in names
                    for figure, form in (
                        ("decode_bytes_per_second", ".0f"),
                        ("windows_per_byte", ".2f"),
                        ("global_passes_per_byte", ".2f"),
                    )
                ),
            )
            for row in rows
        ],
    )  # fmt: skip


def _speed_table(rows, prompts):
    """A line a method, a column a batch size; counts are those of the last size."""
    cells = []
    for name in _methods(rows):
        methods = [row["methods"][name] for row in rows]
        last = methods[-1]
        cells.append(
            (
                name,
                "yes" if last["lossless"] else "no",
                intervals.shown(last["bytes_per_round"]),
                intervals.shown(last["bytes_per_round_without_loops"]),
                f"{last['loops']}/{prompts}",
                intervals.shown(last["acceptance"], ".1f", times=100) if last["lossless"] else None,
                published_fast_blt.shown(*DRAFTING[name]),
                *(
                    f"{m['decode_speed']:.2f} ({m['decode_speed_range'][0]:.2f} to "
                    f"{m['decode_speed_range'][1]:.2f}) / {m['roofline_speed']:.2f}"
                    for m in methods
                ),
            )
        )
    return study.table(
        ("method", "lossless", "bytes per round", "without loops", "loops", "acceptance, %",
         "published",
         *(f"batch {row['setting']['batch']}" for row in rows)),
        cells,
    )  # fmt: skip


def _of(row, figure, form):
    return format(row[figure], form) if row and row[figure] is not None else None


if __name__ == "__main__":
    main()
