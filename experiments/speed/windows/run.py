"""What a round costs on a CPU in which several bytes are really drafted, and where it goes.

    python -m experiments.speed.windows.run

Rounds of `blt-s` at one row, with real patches: the decoder drafts W - 1 bytes, and one pass over W
bytes verifies them. Half of each draft is kept, whatever it says. Beside it the empty draft in
windows of W, in which the patches behind the first byte are not run. Plain decoding, the drafted
and the empty windows run in turns in one process. By XLA's own trace, which slows small operations
down, the time of a round is shared out among its parts.
"""

import functools
import pathlib
import tempfile

import bytelax
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import random_blt, replay, study, thunks
from experiments.speed.windows import products

MINUTES = 15
RESULTS = (study.MAIN, "products")
LIBRARIES = {"ynn": {}, "eigen": {"xla_cpu_experimental_ynn_fusion_type": ""}}


def contestants(window):
    """Plain decoding; drafts of which half is kept; and the empty draft in the same window."""
    length = window - 1
    kept = (1.0,) * (length // 2) + (0.0,) * (length - length // 2)
    drafted = {"draft_length": length, "accept": replay.Replayed(kept)}
    return {
        "plain": PLAIN,
        "drafted": Contestant("blt-s", drafted),
        "empty": Contestant("ar", {"window": window}),
    }


def measure(setting, options, scratch):
    """Milliseconds of a round, in single bytes, and by part."""
    model, text = random_blt.or_bundled(setting["shape"], options.context + options.new)
    window, prompt = setting["window"], text[: options.context]
    ways = contestants(window) if window > 1 else {"plain": PLAIN}
    runs = dict(
        zip(
            ways,
            timing.in_turns(
                model, [prompt], list(ways.values()), new=options.new, repeats=options.repeats
            ),
            strict=True,
        )
    )
    rows = {}
    for name, own in runs.items():
        each = [seconds / own.stats.rounds for seconds in own.decode_seconds]
        plain = [seconds / options.new for seconds in runs["plain"].decode_seconds]
        ratios = sorted(a / b for a, b in zip(each, plain, strict=True))
        rows[name] = {
            "ms": 1e3 * sorted(each)[len(each) // 2],
            "in_bytes": ratios[len(ratios) // 2],
            "range": [ratios[0], ratios[-1]],
            "bytes_per_round": own.stats.bytes / own.stats.rounds,
            "patches_per_round": own.stats.patches / own.stats.rounds,
        }
    way = ways["drafted" if window > 1 else "plain"]
    decode = functools.partial(
        bytelax.generate, model, [prompt], method=way.method, max_new_bytes=options.new,
        allow_eos=False, **way.settings,
    )  # fmt: skip
    rounds = decode().stats.rounds
    return {"ways": rows, "parts": thunks.profile(decode, rounds, scratch)}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--shapes", nargs="+", default=["tiny", "35M", "100M"])
    options.add_argument("--windows", nargs="+", type=int, default=[1, 3, 5, 9, 17])
    options.add_argument("--context", type=int, default=128, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=128, help="bytes generated")
    options.add_argument("--repeats", type=int, default=7)
    options = options.parse_args()
    if options.smoke:
        options.shapes, options.windows, options.context, options.new = ["smallest"], [1, 5], 48, 24
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        thunks.dump_to(scratch)
        study.run(
            options.results / f"{study.MAIN}.json",
            {name: getattr(options, name) for name in ("context", "new", "repeats")},
            [{"shape": shape, "window": w} for shape in options.shapes for w in options.windows],
            lambda setting: measure(setting, options, scratch),
            markdown=markdown,
        )
    # Of the global transformer: `gate_up` of the 100M shape, and of the 1B.
    matrices = [(64, 128)] if options.smoke else [(512, 2816), (2048, 11264)]
    study.run(
        options.results / "products.json",
        {"repeats": options.repeats},
        [{"matrix": matrix, "rows": [1, 2, *options.windows[1:]]} for matrix in matrices],
        lambda setting: products.measure(setting, LIBRARIES, options.repeats),
        markdown=products.markdown,
    )


def markdown(report):
    lines = [
        "# Rounds on a CPU, by their window",
        "",
        f"One row, prompts of {report['context']} bytes, {report['new']} new ones, "
        f"{report['repeats']} runs in turns; {study.machine(report)}. A round of `blt-s` drafts "
        "W - 1 bytes with the decoder and verifies them in one pass over W; half of a draft is "
        "kept. \"Empty\" is a window of W without a draft, as this page used to measure: the "
        "global transformer runs for its first byte alone. Models other than `tiny` have random "
        "weights and an entropy model of their own.",
    ]  # fmt: skip
    shapes = dict.fromkeys(row["setting"]["shape"] for row in report["rows"])
    for shape in shapes:
        rows = [row for row in report["rows"] if row["setting"]["shape"] == shape]
        lines += ["", f"## {shape}", "", *study.table(_HEADER, [_cells(row) for row in rows])]
        lines += ["", "Milliseconds of a round by part (operations), traced:", ""]
        lines += study.table(("window", *thunks.PARTS, thunks.GAP), [_parts(row) for row in rows])
    return "\n".join([*lines, ""])


_HEADER = (
    "window", "bytes drafted", "ms/round", "in plain bytes", "range", "patches/round",
    "bytes/round", "empty, in plain bytes", "range",
)  # fmt: skip


def _cells(row):
    window, ways = row["setting"]["window"], row["ways"]
    own = ways.get("drafted", ways["plain"])
    empty = ways.get("empty")
    return (
        window, window - 1, f"{own['ms']:.2f}", *_ratio(own), f"{own['patches_per_round']:.2f}",
        f"{own['bytes_per_round']:.2f}", *(_ratio(empty) if empty else (None, None)),
    )  # fmt: skip


def _ratio(way):
    return f"{way['in_bytes']:.2f}", "{:.2f} to {:.2f}".format(*way["range"])


def _parts(row):
    parts = row["parts"]
    told = [f"{parts['ms'][part]:.2f} ({parts['thunks'][part]:.0f})" for part in thunks.PARTS]
    return (row["setting"]["window"], *told, f"{parts['ms'][thunks.GAP]:.2f}")


if __name__ == "__main__":
    main()
