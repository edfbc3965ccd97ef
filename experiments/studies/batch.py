"""What methods gain in batches, over plain decoding of as many rows.

"Roofline": the speed if every pass took as long as reading its weights and caches, or multiplying
them, at rates measured on this machine; an estimate, no bound. "Windows" and "global passes" are of
the batch, for each byte of a row. Rows of `tiny-d` and `tiny-lm` are no longer run, nor those with
`synchronous` (LOG.md).

    python -m experiments.studies.batch --data DIR [--models small-lm]
"""

import statistics

from bytelax.measure import timing
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.harness import floor, roofline
from experiments.study import Column

PLAIN = "plain"
SIZES = (16, 64)
METHODS = {
    "tiny": (
        ("blt-s", {"draft_length": 2}), ("blt-s", {"draft_length": 8}),
        ("blt-s", {"draft_length": 16, "latent": "predicted"}), ("eagle", {"draft_length": 8}),
    ),
    "small-lm": tuple(
        ("draft-model", {"draft_model": "small-draft", "draft_length": length}) for length in (2, 4)
    ),
}  # fmt: skip
COLUMNS = [
    Column("model", "model"),
    Column("rows", "batch"),
    Column("T", "temperature", "g"),
    Column("method", "method"),
    Column("options", "options"),
    Column("baseline", "baseline"),
    Column("speed", "speed", ".2f"),
    Column("roofline", "roofline_speed", ".2f"),
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("acceptance", "acceptance", ".1%"),
    Column("windows", "windows_per_byte", ".2f"),
    Column("global passes", "global_passes_per_byte", ".2f"),
    Column("lossless", "lossless"),
]


def main():
    parser = evidence.parser(__doc__, new=48)
    parser.add_argument("--models", nargs="+", choices=METHODS, default=[*METHODS])
    options = evidence.parsed(parser)
    if options.smoke:
        options.prompts = 4  # whole batches
    texts = [text for _, text in evidence.prompts(options)]
    machine = floor.measured(megabytes=16 if options.smoke else 512)
    settings = [
        {"model": model, "temperature": temperature, "batch": size}
        for model in options.models
        for temperature in evidence.TEMPERATURES
        for size in ((2,) if options.smoke else SIZES)
    ]
    study.run(
        "batch", options, settings[:1] if options.smoke else settings,
        lambda setting: measure(setting, texts, machine, options),
        conditions=evidence.conditions(options),
    )  # fmt: skip


def measure(setting: dict, texts: list[bytes], machine, options) -> list[dict]:
    """A row for each method, all of them in turns; the plain ones come first."""
    model = evidence.loaded(setting["model"], dtype="float32")
    plain = {PLAIN: ("ar", {})}
    methods = METHODS[setting["model"]][: 1 if options.smoke else None]
    ways = [*plain.values(), *methods]
    contestants = [evidence.contestant(*way) for way in ways]
    runs = timing.in_turns(
        model, texts, contestants, new=options.new, repeats=options.repeats,
        batch=setting["batch"], temperature=setting["temperature"],
    )  # fmt: skip
    least = [
        roofline.seconds(
            model, Contestant(*way), own.stats, machine, rows=setting["batch"],
            context=len(texts[0]),
        )
        for way, own in zip(contestants, runs, strict=True)
    ]  # fmt: skip
    best = min(range(len(plain)), key=lambda at: statistics.median(runs[at].decode_seconds))
    baseline = list(plain)[best]
    shared = len(texts) / setting["batch"] * options.new  # bytes of a row of all batches
    rows = []
    for at, (way, own) in enumerate(zip(ways, runs, strict=True)):
        timed = timing.compare(runs[best], own)
        counted = evidence.figures([result for output in own.outputs for result in output.results])
        rows.append({
            "method": way[0], "options": way[1], "baseline": baseline,
            "speed": study.spread(*timed.decode_speed),
            "roofline_speed": least[best] / least[at],
            "bytes_per_round": counted["bytes_per_round"],
            "acceptance": counted["acceptance"] if timed.lossless and at >= len(plain) else None,
            "windows_per_byte": own.stats.batch_windows / shared,
            "global_passes_per_byte": own.stats.global_chunks / shared,
            "lossless": timed.lossless, "same_outputs": timed.same_outputs,
        })  # fmt: skip
    return rows


if __name__ == "__main__":
    main()
