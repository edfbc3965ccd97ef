"""Fast BLT's tables on trained models, with what the paper left out: bytes per second.

    python -m experiments.speed.blt_methods.run --data DIR

For every method and setting, at temperature 0 and 1: bytes per round, passes and the paper's
bandwidth formula, of 64 held-out prompts of five genres in batches of 16, with intervals over
prompts; and the wall clock of one row at a time beside plain decoding (W = 1, with caches), on two
prompts of each genre. `blt-s` is measured on a BLT, beside other drafters of the same BLT, and
block diffusion on a BLT-D.
"""

import functools

from bytelax import load
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import (
    evidence,
    intervals,
    one_figure,
    published_fast_blt,
    side_by_side,
    speed_table,
    study,
)

MINUTES = 28
SMALL = "tiny-draft"
TEMPERATURES = (0.0, 1.0)
BLT, BLT_D = "model", "d_model"  # as `main` calls their options
ONE_STEP, CONFIDENCE = {"unmask": "one-step"}, {"unmask": "confidence", "alpha": 0.7}
RULES = {
    "blt-d": (ONE_STEP, CONFIDENCE, {"unmask": "entropy", "gamma": 0.5}),
    # Verification costs so much here that a second rule in several passes would tell nothing new.
    "blt-dv": (ONE_STEP, CONFIDENCE),
}
SETTINGS = (
    (BLT, "ar", {}),
    *((BLT, "blt-s", {"draft_length": k}) for k in (4, 8, 16)),
    # As published: a second pass brings the latent up to date before each draft.
    (BLT, "blt-s", {"draft_length": 8, "latent": "refresh"}),
    (BLT, "blt-s", {"draft_length": 8, "draft_with": "medusa"}),
    (BLT, "eagle", {"draft_length": 8}),
    (BLT, "eagle", {"draft_length": 8, "min_survival": 0.3}),
    (BLT, "medusa", {}),
    (BLT, "draft-model", {"draft_length": 4}),
    (BLT, "lookup", {"draft_length": 8}),
    (BLT_D, "ar", {}),
    *(
        (BLT_D, method, {"block_size": size, **rule})
        for method, rules in RULES.items()
        for size in (4, 8, 16)
        for rule in rules
    ),
)


def main():
    options = study.parser(__doc__, __file__, model="tiny")
    options.add_argument("--d-model", default="tiny-d", help="a BLT-D")
    evidence.add_options(options, new=96)
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    settings = [
        {"model": getattr(options, of), "method": method, "temperature": temperature, **chosen}
        for temperature in TEMPERATURES
        for of, method, chosen in SETTINGS
    ]
    study.run(
        options.results / "results.json",
        evidence.measured_on(options, texts),
        settings[:2] if options.smoke else settings,
        lambda setting: measure(setting, texts, options.new, options.repeats),
        markdown=markdown,
    )  # fmt: skip


def measure(setting, texts, new, repeats):
    """A row of the table: counts of all prompts, and bytes per second on a few."""
    chosen = dict(setting)
    name, method, temperature = (chosen.pop(key) for key in ("model", "method", "temperature"))
    how = {"new": new, "temperature": temperature}
    given = {"draft_model": model(SMALL)} if method == "draft-model" else {}
    own, few = Contestant(method, chosen | given), evidence.few(texts)
    found = evidence.decoded(model(name), [text for _, text in texts], own, **how)
    timed = evidence.speed(model(name), few, own, repeats=repeats, **how)
    return (
        evidence.figures(found)
        | {
            "by_genre": evidence.by_genre(found, [genre for genre, _ in texts]),
            "same_outputs": evidence.same_outputs(found, plain(name, tuple(texts), new))
            if not temperature
            else None,
        }
        | timed
    )


@functools.cache
def model(name):
    return load(name, dtype="float32")


@functools.cache
def plain(name, texts, new):
    """Greedy plain decoding of all prompts."""
    return evidence.decoded(model(name), [text for _, text in texts], PLAIN, new=new, temperature=0)


def speeds(report):
    return one_figure.of_rows(report)


def headline(report):
    return speed_table.best_settings(report)


def markdown(report):
    header = (
        "model", "method", "setting", "bytes per round", "without loops", "loops", "acceptance, %",
        "published", "decoder", "global", "GB", "beside plain", "with all", "bytes/s", "speed",
        "range", "same output",
    )  # fmt: skip
    lines = [
        "# The methods of Fast BLT, measured",
        "",
        *evidence.warning(report),
        evidence.conditions(report),
        "",
        *evidence.LEGEND,
        evidence.latents(),
        published_fast_blt.LEGEND,
        "- Decoder, global: passes per byte.",
        "- GB: weights read for 1,000 bytes by the paper's formula, which leaves the entropy model "
        "out; beside plain decoding of the same model; and the same with the entropy model and the "
        "drafter's own network.",
        evidence.timed(report),
        "- `blt-d` verifies nothing. It keeps all of a block and writes another text, whose "
        "quality is not measured here.",
    ]
    for temperature in dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["setting"]["temperature"] == temperature]
        lines += ["", f"## Temperature {temperature:g}", "",
                  *study.table(header, [cells(report, row, own) for row in own])]  # fmt: skip
    return "\n".join([*lines, ""])


def cells(report, row, rows):
    """A line of the table; `rows` are those of its temperature."""
    setting = dict(row["setting"])
    name, method, temperature = (setting.pop(key) for key in ("model", "method", "temperature"))
    beside = next(
        (each for each in rows if (each["setting"]["model"], each["setting"]["method"]) ==
         (name, "ar")), row,
    )  # fmt: skip
    lossy = not row["lossless"]
    return (
        f"`{name}`",
        method,
        side_by_side.named(setting),
        intervals.shown(row["bytes_per_round"]),
        intervals.shown(row["bytes_per_round_without_loops"]),
        f"{row['loops']}/{report['prompts']}",
        None if lossy else intervals.shown(row["acceptance"], ".1f", times=100),
        published_fast_blt.shown(method, setting),
        f"{row['decoder_passes_per_byte']['value']:.2f}",
        f"{row['global_passes_per_byte']['value']:.3f}",
        intervals.shown(row["published_gb_per_byte"], times=1000),
        *(
            f"{row[kind]['value'] / beside[kind]['value']:.2f}"
            for kind in ("published_gb_per_byte", "gb_per_byte")
        ),
        f"{row['decode_bytes_per_second']:.0f}",
        f"{row['decode_speed']:.2f}",
        "{:.2f} to {:.2f}".format(*row["decode_speed_range"]),
        None if temperature or lossy else f"{row['same_outputs']}/{report['prompts']}",
    )


if __name__ == "__main__":
    main()
