"""What rules of acceptance, and rules that end a draft, are worth.

    python -m experiments.speed.draft_rules.run --data DIR

The same drafters of the bundled models, verified byte by byte and as a block, and accepted by
Medusa's typical acceptance, which is lossy: how likely its text is to the model stands beside. 64
held-out prompts of five genres, at temperature 0 and 1, one row at a time.
"""

import functools

from bytelax import decode, load
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import evidence, intervals, published_fast_blt, study
from experiments.harness.one_figure import Setting, Timed

MINUTES = 6
SMALL = "tiny-draft"
DRAFTERS = {
    "blt-s of tiny": ("tiny", "blt-s", {"draft_length": 8}),
    "eagle of tiny-lm": ("tiny-lm", "eagle", {"draft_length": 8}),
    "draft model of tiny-lm": ("tiny-lm", "draft-model", {"draft_length": 8}),
}
TYPICAL = "typical acceptance"
# At temperature 0 a block and its bytes are verified alike, and what is typical is the likeliest.
RULES = {
    0.0: {
        "none": {},
    },
    1.0: {
        "byte by byte": {"accept": decode.Lossless(decode.rejection)},
        "as a block": {},
        TYPICAL: {},
    },
}


def main():
    options = study.parser(__doc__, __file__, model=None)
    evidence.add_options(options, new=96)
    options = evidence.parsed(options)
    texts = evidence.prompts(options)
    chosen = [
        {"drafter": drafter, "temperature": temperature, "rule": rule}
        for drafter in DRAFTERS
        for temperature, rules in RULES.items()
        for rule in rules
        # EAGLE drafts from states that only its own method arranges.
        if rule != TYPICAL or "eagle" not in drafter
    ]
    study.run(
        options.results / "results.json",
        evidence.measured_on(options, texts),
        chosen[-1:] if options.smoke else chosen,
        lambda setting: measure(setting, texts, options),
        markdown=markdown,
    )  # fmt: skip


loaded = functools.cache(functools.partial(load, dtype="float32"))


def contestant(setting):
    """The model and the method of a setting."""
    name, method, chosen = DRAFTERS[setting["drafter"]]
    model = loaded(name)
    if setting["rule"] != TYPICAL:
        given = {"draft_model": loaded(SMALL)} if method == "draft-model" else {}
        rule = RULES[setting["temperature"]][setting["rule"]]
        return model, Contestant(method, chosen | rule | given)
    if method == "blt-s":
        drafter, given = decode.PastBoundary(chosen["draft_length"]), {}
    else:
        small = loaded(SMALL)
        drafter = decode.DraftModel(small.target(), chosen["draft_length"])
        given = {"draft_params": small.params}
    return model, Contestant(decode.Method(model.target(), drafter, decode.typical), given)


def measure(setting, texts, options):
    """What a rule keeps, how fast it is, and how likely its text is to the model."""
    model, own = contestant(setting)
    temperature, stems = setting["temperature"], [text for _, text in texts]
    found = evidence.decoded(model, stems, own, new=options.new, temperature=temperature)
    row = evidence.figures(found) | {"bits_per_byte": evidence.bits_per_byte(model, stems, found)}
    row |= evidence.speed(
        model, evidence.few(texts), own, temperature=temperature, new=options.new,
        repeats=options.repeats,
    )  # fmt: skip
    if setting["rule"] in ("none", "byte by byte"):
        plain = evidence.decoded(model, stems, PLAIN, new=options.new, temperature=temperature)
        row["plain_bits_per_byte"] = evidence.bits_per_byte(model, stems, plain)
    return row


def speeds(report):
    """Of the rule that each method has by itself."""
    for row in report["rows"]:
        drafter, temperature, rule = row["setting"].values()
        if rule != TYPICAL and RULES[temperature].get(rule) == {}:
            model, method, options = DRAFTERS[drafter]
            setting = Setting.of(model, method, options, temperature)
            yield Timed(setting, row["decode_speed"], *row["decode_speed_range"])


def markdown(report):
    header = (
        "drafter", "rule", "bytes per round", "without loops", "loops", "acceptance, %",
        "published", "draft passes per byte", "speed", "range", "bits per byte", "lossless",
    )  # fmt: skip
    lines = [
        "# Rules of acceptance, and where a draft ends",
        "",
        *evidence.warning(report),
        f"Drafts of 8 bytes. {evidence.conditions(report)}",
        "",
        *evidence.LEGEND,
        published_fast_blt.LEGEND,
        evidence.timed(report),
        "- Bits per byte: of what was written, under the model at temperature 1. Plain decoding "
        "stands in the first row of each drafter; a lossless method differs from it by chance "
        "alone.",
    ]
    for temperature in dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["setting"]["temperature"] == temperature]
        rows = []
        for row in own:
            if "plain_bits_per_byte" in row:
                plain = intervals.shown(row["plain_bits_per_byte"])
                rows.append((row["setting"]["drafter"], "no drafts", *[None] * 8, plain, "yes"))
            rows.append(cells(row))
        lines += ["", f"## Temperature {temperature:g}", "", *study.table(header, rows)]
    return "\n".join([*lines, ""])


def cells(row):
    low, high = row["decode_speed_range"]
    apart = row["bytes_per_round_without_loops"]
    _, method, chosen = DRAFTERS[row["setting"]["drafter"]]
    return (
        row["setting"]["drafter"],
        row["setting"]["rule"],
        intervals.shown(row["bytes_per_round"]),
        apart and intervals.shown(apart),
        row["loops"],
        f"{100 * row['acceptance']['value']:.1f}",
        published_fast_blt.shown(method, chosen),
        f"{row['draft_passes_per_byte']['value']:.2f}",
        f"{row['decode_speed']:.2f}",
        f"{low:.2f} to {high:.2f}",
        intervals.shown(row["bits_per_byte"]),
        "yes" if row["lossless"] else "no",
    )


if __name__ == "__main__":
    main()
