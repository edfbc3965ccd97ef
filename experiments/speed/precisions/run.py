"""What drafting gains on the bundled models in float32 and in bfloat16.

    python -m experiments.speed.precisions.run --data DIR

The drafters of each model that keep most for what they cost, beside plain decoding of the same
weights in the same precision: what they keep on 64 held-out prompts of five genres at temperature 0
and 1, and how fast one row is. In narrow weights a window of a few bytes costs less of what it
multiplies, and a plain byte less of what it reads.
"""

import functools

from bytelax_kernels import native

from bytelax import load
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import evidence, intervals, side_by_side, study

MINUTES = 13
DTYPES = ("float32", "bfloat16")
TEMPERATURES = (0.0, 1.0)
SMALL = "tiny-draft"
DRAFTERS = {
    "tiny-lm": (
        ("medusa", {}),
        ("eagle", {"draft_length": 4}),
        ("eagle", {"draft_length": 8}),
        ("draft-model", {"draft_length": 4}),
    ),
    "tiny": (
        ("blt-s", {"draft_length": 4}),
        ("blt-s", {"draft_length": 8}),
        ("blt-s", {"draft_length": 16, "latent": "predicted"}),
        ("eagle", {"draft_length": 4}),
        ("eagle", {"draft_length": 8}),
    ),
}

loaded = functools.cache(load)


def measure(setting, texts, options):
    """What a drafter keeps, and how fast it is beside plain decoding in the same precision."""
    chosen = dict(setting)
    name, dtype, method, temperature = (
        chosen.pop(key) for key in ("model", "dtype", "method", "temperature")
    )
    model, stems = loaded(name, dtype=dtype), [text for _, text in texts]
    given = {"draft_model": loaded(SMALL, dtype=dtype)} if method == "draft-model" else {}
    own = Contestant(method, chosen | given)
    how = {"new": options.new, "temperature": temperature}
    found = evidence.decoded(model, stems, own, **how)
    same = None
    if not temperature:
        # The compiled kernels write these bytes at any window and batch.
        plain = evidence.decoded(model, stems, PLAIN, **how, batch=1)
        same = evidence.same_outputs(found, plain)
    return (
        evidence.figures(found)
        | {"same_outputs": same}
        | evidence.speed(model, evidence.few(texts), own, repeats=options.repeats, **how)
    )


def main():
    options = study.parser(__doc__, __file__, model=None)
    evidence.add_options(options, new=128)
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    chosen = [
        {"model": model, "dtype": dtype, "temperature": temperature, "method": method, **how}
        for model, drafters in DRAFTERS.items()
        for temperature in TEMPERATURES
        for method, how in drafters
        for dtype in DTYPES
    ]
    study.run(
        options.results / f"{study.MAIN}.json",
        {"kernels": native.instructions(), **evidence.measured_on(options, texts)},
        chosen[:1] if options.smoke else chosen,
        lambda setting: measure(setting, texts, options),
        markdown=markdown,
    )


def markdown(report):
    header = (
        "model", "method", "setting", "weights", "bytes per round", "without loops", "loops",
        "acceptance, %", "plain, ms per byte", "speed", "range", "same output",
    )  # fmt: skip
    lines = [
        "# Drafting on the bundled models, by precision",
        "",
        *evidence.warning(report),
        f"Kernels for {report['kernels']}. {evidence.conditions(report, ' and '.join(DTYPES))}",
        "",
        *evidence.LEGEND,
        evidence.timed(report),
        "- Same output: prompts after which the bytes are those of plain decoding, which runs "
        "them one by one.",
    ]
    for temperature in dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["setting"]["temperature"] == temperature]
        lines += ["", f"## Temperature {temperature:g}", ""]
        lines += study.table(header, [cells(report, row) for row in own])
    return "\n".join([*lines, ""])


def cells(report, row):
    """A line of the table."""
    chosen = dict(row["setting"])
    name, dtype, method, temperature = (
        chosen.pop(key) for key in ("model", "dtype", "method", "temperature")
    )
    return (
        f"`{name}`", method, side_by_side.named(chosen), dtype,
        intervals.shown(row["bytes_per_round"]),
        intervals.shown(row["bytes_per_round_without_loops"]),
        f"{row['loops']}/{report['prompts']}",
        intervals.shown(row["acceptance"], ".1f", times=100),
        f"{1e3 * row['decode_speed'] / row['decode_bytes_per_second']:.3f}",
        f"{row['decode_speed']:.2f}", "{:.2f} to {:.2f}".format(*row["decode_speed_range"]),
        None if temperature else f"{row['same_outputs']}/{report['prompts']}",
    )  # fmt: skip


if __name__ == "__main__":
    main()
