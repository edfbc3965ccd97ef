"""Whether the setting that `bytelax tune` finds is the fastest of a full grid.

`tune` measures windows, a few draft lengths and what long drafts keep, calculates the rest, and
times the best of that. The grid times every length on the same prompts, in turns with plain
decoding. The draft model is in int8. "Expected": what `tune` calculates.

    python -m experiments.studies.tuned --data DIR
"""

from bytelax.measure.timing import Contestant, compare_with_plain
from bytelax.measure.tune import candidates, tune
from experiments import evidence, study
from experiments.study import Column

MODELS = {"small-lm": "small-draft"}
LONGEST = 10
COLUMNS = [
    Column("model", "model"),
    Column("weights", "dtype"),
    Column("method", "method"),
    Column("bytes drafted", "draft_length"),
    Column("expected", "expected", ".2f"),
    Column("measured", "speed", ".2f"),
    Column("chosen", "chosen"),
    Column("of the fastest", "of_the_fastest", ".2f"),
]


def main():
    parser = evidence.parser(__doc__, new=64)
    parser.set_defaults(prompts=16, split="valid", repeats=3)
    options = evidence.parsed(parser)
    models = {"tiny-lm": "tiny-draft"} if options.smoke else MODELS
    texts = [text for _, text in evidence.prompts(options)]
    settings = [{"model": name, "dtype": dtype} for name in models for dtype in evidence.DTYPES]

    def measure(setting):
        return grid(setting, models[setting["model"]], texts, options)

    study.run(
        "tuned",
        options,
        settings,
        measure,
        conditions=evidence.conditions(options, draft_model_in="int8"),
    )


def grid(setting: dict, draft_model: str, texts: list[bytes], options) -> list[dict]:
    """A row for each method and length."""
    longest = 2 if options.smoke else LONGEST
    dtype = setting["dtype"]
    model = evidence.loaded(setting["model"], dtype=dtype)
    loading = {"dtype": dtype, "quantize": "int8"}
    small = evidence.loaded(draft_model, **loading)
    tuning = tune(
        model, texts, draft_model=draft_model, draft_loading=loading, max_new_bytes=options.new,
        longest=longest,
    )  # fmt: skip
    expected = {(plan.method, plan.draft_length): plan.speed for plan in tuning.plans}
    known = candidates(model, longest, small)
    places = [place for place in expected if place[1] and place[0] in ("draft-model", "lookup")]
    contestants = [Contestant(method, known[method][length]) for method, length in places]
    found = compare_with_plain(
        model, texts[:: max(len(texts) // 8, 1)], contestants, new=options.new,
        repeats=options.repeats,
    )  # fmt: skip
    measured = {place: own.decode_speed for place, own in zip(places, found, strict=True)}
    fastest = max(speed.median for speed in measured.values())
    best = [(plan.method, plan.draft_length) for plan, _ in tuning.timed[:1]]
    return [
        {
            "method": method,
            "draft_length": length,
            "expected": expected[method, length],
            "speed": study.spread(*speed),
            "chosen": [(method, length)] == best,
            "of_the_fastest": speed.median / fastest,
        }
        for (method, length), speed in measured.items()
    ]


if __name__ == "__main__":
    main()
