"""What methods are worth in batches of 1 to 64, beside the best plain decoding at that size.

    python -m experiments.speed.batch.run --data DIR

In a batch some row closes a patch at nearly every byte, so plain decoding of a BLT reads its global
weights nearly every time; rows that wait for one another (`synchronous`) share that pass. Both are
run, and the faster one is the baseline. Beside each measured speed stands what a roofline says:
every pass takes as long as reading its weights and caches, or as multiplying them, on this machine.
"""

import statistics

from bytelax import load
from bytelax.measure import floor, timing
from bytelax.measure.timing import Contestant
from experiments.harness import roofline, side_by_side, speed_table, study
from experiments.speed.batch import predicted

MINUTES = 25
BATCHES = (1, 2, 4, 8, 16, 32, 64)
LEAST = 4  # prompts, also where a batch has fewer rows
PLAIN = {
    "plain": Contestant("ar", {}),
    "plain, half wait": Contestant("ar", {"synchronous": 0.5}),
    "plain, all wait": Contestant("ar", {"synchronous": 1.0}),
}
BLT = {
    "blt-s 8": Contestant("blt-s", {"draft_length": 8}),
    "blt-s 16": Contestant("blt-s", {"draft_length": 16}),
    "blt-dv 8, one step": Contestant("blt-dv", {"block_size": 8}),
    "blt-d 16, one step": Contestant("blt-d", {"block_size": 16, "unmask": "one-step"}),
    "lookup 8": Contestant("lookup", {"draft_length": 8}),
    "draft-model 4": Contestant("draft-model", {"draft_length": 4}),
}
BYTE_LM = {
    "early-exit 4": Contestant("early-exit", {"exit_layer": 6, "draft_length": 4}),
    "two-byte": Contestant("two-byte", {}),
    "medusa": Contestant("medusa", {}),
    "composed 4": Contestant("composed", {"exit_layer": 6, "draft_length": 4}),
    "layer-skip 4": Contestant("layer-skip", {"draft_length": 4}),
    "eagle 4": Contestant("eagle", {"draft_length": 4}),
    "lookup 8": Contestant("lookup", {"draft_length": 8}),
    "draft-model 4": Contestant("draft-model", {"draft_length": 4}),
}
FAMILIES = {"tiny": PLAIN | BLT, "tiny-lm": {"plain": PLAIN["plain"]} | BYTE_LM}


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
    methods = {}
    for name, own in runs.items():
        timed = timing.beside(runs[best], own)
        row = timing.figures(timed)
        windows = own.stats.batch_windows / len(own.outputs)
        methods[name] = {
            kept: row[kept]
            for kept in (
                "acceptance", "bytes_per_round", "bytes_per_patch", "decode_bytes_per_second",
                "decode_speed", "decode_speed_range", "same_outputs", "lossless",
            )
        } | {
            "windows_per_byte": windows / how["new"],
            "global_passes_per_byte": own.stats.global_chunks / len(own.outputs) / how["new"],
            "roofline_speed": least[best] / least[name],
            "over_roofline": timed.decode_seconds / least[name],
        }  # fmt: skip
    return {"best_plain": best, "methods": methods}


def with_draft_model(contestants, small):
    """The same, with the model that `draft-model` drafts with."""
    return {
        name: Contestant(method, settings | {"draft_model": small})
        if method == "draft-model"
        else Contestant(method, settings)
        for name, (method, settings) in contestants.items()
    }


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--new", type=int, default=64, help="bytes generated a prompt")
    options.add_argument("--repeats", type=int, default=5)
    options = options.parse_args()
    how = {"new": options.new, "repeats": options.repeats}
    texts = side_by_side.prompts(options.data, max(BATCHES), options.context)
    small = load("tiny-draft", dtype="float32")
    models = {name: load(name, dtype="float32") for name in FAMILIES}
    machine = floor.measured(megabytes=16 if options.smoke else 512)

    def row(setting):
        name, batch = setting["model"], setting["batch"]
        contestants = with_draft_model(FAMILIES[name], small)
        if batch == 1:  # there is nobody to wait for
            contestants = {n: c for n, c in contestants.items() if "synchronous" not in c.settings}
        if options.smoke:
            names = ("plain", "plain, all wait", "blt-s 8")
            contestants = {n: c for n, c in contestants.items() if n in names}
        return measure(
            models[name], texts[: max(batch, LEAST)], contestants, machine,
            how | {"batch": batch},
        )  # fmt: skip

    study.run(
        options.results / "results.json",
        {"context": options.context, "temperature": 0.0, **how},
        [{"model": "tiny", "batch": 2}]
        if options.smoke
        else [{"model": name, "batch": batch} for name in FAMILIES for batch in BATCHES],
        row,
        markdown=markdown,
    )


def headline(report):
    """At batches of 1, 8 and 64 the fastest lossless method beside the best plain decoding."""
    for row in report["rows"]:
        setting, methods = row["setting"], row["methods"]
        drafting = {n: m for n, m in methods.items() if m["lossless"] and n[:5] != "plain"}
        if setting["batch"] not in (1, 8, 64) or not drafting:
            continue
        name = max(drafting, key=lambda n: drafting[n]["decode_speed"])
        yield speed_table.row(
            report, methods[name], model=setting["model"], method=name,
            baseline=row["best_plain"], batch=setting["batch"], context=report["context"],
            temperature=report["temperature"],
        )  # fmt: skip


def markdown(report):
    lines = [
        "# Methods in batches",
        "",
        f"Prompts of {report['context']} bytes, as many as a batch has rows and at least {LEAST}: "
        "speeds of one size compare, those of two sizes are of different texts. "
        f"{report['new']} new bytes, of whose last round a part is cut off, temperature "
        f"{report['temperature']:g}, {study.machine(report)}. Speed: median of "
        f"{report['repeats']} ratios to the best plain decoding at the same batch size, in turns "
        "in one process, taking in the prompts left out; in brackets their range, and behind a "
        "slash what the roofline of this machine says of the same passes.",
    ]
    for family in dict.fromkeys(row["setting"]["model"] for row in report["rows"]):
        rows = [row for row in report["rows"] if row["setting"]["model"] == family]
        lines += ["", f"## `{family}`", "", *_plain_table(rows), "", *_speed_table(rows)]
    lines += [
        "",
        "## What was predicted",
        "",
        "A roofline of an H200 (4.3 TB/s, 700 TFLOP/s in bfloat16, 67 in float32, in which the "
        f"entropy model runs) at the 1B shape, a context of {predicted.CONTEXT} bytes, "
        f"{predicted.BYTES_PER_PATCH} bytes a patch, with the acceptance published for 3B, beside "
        "the better of plain decoding with rows that wait and without. Unlike a token model's the "
        "speed should rise to a batch of 8, and be above 2 at 64. A first version, with the "
        "entropy model in bfloat16 and no encoder in the drafts of BLT-S, had its top at 16.",
        "",
        *study.table(
            ("method", *(f"batch {size}" for size in BATCHES)),
            [
                (name, *(f"{speed:.1f}" for speed in speeds))
                for name, speeds in predicted.speeds(BATCHES).items()
            ],
        ),
        "",
    ]
    return "\n".join(lines)


def _plain_table(rows):
    """Plain decoding: what is fastest, and how often the batch ran the global transformer."""
    names = [name for name in PLAIN if any(name in row["methods"] for row in rows)]
    yield from study.table(
        ("batch", "best plain", "bytes a patch",
         *(f"{name}: {what}" for name in names
           for what in ("bytes/s", "windows a byte", "global passes a byte"))),
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


def _speed_table(rows):
    """A line a method, a column a batch size."""
    names = [name for name in rows[0]["methods"] if name not in PLAIN]
    sizes = [row["setting"]["batch"] for row in rows]
    cells = []
    for name in names:
        methods = [row["methods"][name] for row in rows]
        cells.append(
            (
                name,
                "yes" if methods[0]["lossless"] else "no",
                f"{methods[-1]['bytes_per_round']:.2f}",
                *(
                    f"{m['decode_speed']:.2f} ({m['decode_speed_range'][0]:.2f} to "
                    f"{m['decode_speed_range'][1]:.2f}) / {m['roofline_speed']:.2f}"
                    for m in methods
                ),
            )
        )
    return study.table(
        ("method", "lossless", "bytes a round", *(f"batch {size}" for size in sizes)), cells
    )


def _of(row, figure, form):
    return format(row[figure], form) if row and row[figure] is not None else None


if __name__ == "__main__":
    main()
