"""What drafting gains on larger weights, at an acceptance that was measured or published elsewhere.

A random BLT of 100M parameters in the proportions of the released 1B. Random weights keep nothing,
so acceptance by position is replayed: that of the bundled BLTs on 64 prompts, or the one rate that
is published for the 3B of Fast BLT, with one pass a round and, as published, with a second pass
that renews the latent before each draft. Figures are of one row of text, which means nothing: they
say what the method costs at that acceptance. In brackets: the range over texts. "Floor": what
reading the weights and caches of the method's passes takes at this machine's bandwidth.

    python -m experiments.studies.wall_clock
"""

import dataclasses
import functools
import math
import statistics

from bytelax import Statistics
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.models.patching import PatchingConfig
from experiments import study
from experiments.harness import floor, published_fast_blt, random_blt, replay, roofline
from experiments.study import Column

METHODS = {
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
    "eagle 8": ("eagle", {"draft_length": 8}),
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
}
UNVERIFIED = {"blt-d 16, one step": Contestant("blt-d", {"block_size": 16, "unmask": "one-step"})}
PUBLISHED = "as published"
SECOND = ", second pass"
SOURCES = ("of tiny, T = 0", "of tiny, T = 1", PUBLISHED)
CUT = {
    "decoder_input": "embedding",
    "block_size": 16,
    "patching": PatchingConfig(max_patch_length=8),
}
COLUMNS = [
    Column("shape", "shape"),
    Column("replayed acceptance", "source"),
    Column("method", "method"),
    Column("acceptance", "acceptance", ".1%"),
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("ms per byte", "ms_per_byte", ".2f"),
    Column("ms per round", "ms_per_round", ".2f"),
    Column("over the floor", "over_floor", ".2f"),
    Column("speed", "speed", ".2f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--context", type=int, default=256, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=256, help="bytes generated for each text")
    options.add_argument("--texts", type=int, default=4)
    options.add_argument("--repeats", type=int, default=3)
    options = options.parse_args()
    shape = "100M"
    if options.smoke:
        options.context, options.new, options.repeats, shape = 24, 8, 1, "smallest"
    machine = floor.measured(megabytes=16 if options.smoke else 512)

    @functools.cache
    def made(shape):
        chosen = random_blt.SHAPES[shape]
        chosen = dataclasses.replace(chosen, heads=random_blt.draft_heads(chosen.decoder), **CUT)
        model = random_blt.model(chosen, 0)
        return random_blt.own_texts(
            model, options.context + options.new, bytes_per_patch=4.0, count=options.texts,
            rewrites=0 if options.smoke else 1,
        )  # fmt: skip

    def measure(setting):
        model, *texts = made(setting["shape"])
        beginnings = [text[: options.context] for text in texts]
        return priced(model, beginnings, setting["source"], machine, options)

    study.run(
        "wall_clock", options,
        [{"shape": shape, "source": source} for source in SOURCES[1 if options.smoke else 0 :]],
        measure,
        conditions={
            name: getattr(options, name) for name in ("context", "new", "texts", "repeats")
        },
    )  # fmt: skip


def acceptance(source: str) -> dict[str, tuple[float, ...]]:
    """Acceptance by position of each method; one rate is published for all places of a draft."""
    if source == PUBLISHED:
        return published_fast_blt.acceptance()
    return replay.of_tiny(float(source.split()[-1]))


def contestants(source: str, *, start: int, new: int, texts: int) -> dict:
    """Methods that verify, with acceptance replayed, and one that does not; each with its seeds.

    Args:
      source: one of `SOURCES`.
      start: ids of each prompt, BOS included.
      new: bytes generated for each text.
      texts: number of texts, each of which has its seed.
    """
    methods = {}
    for name, places in acceptance(source).items():
        method, settings = METHODS[name]
        seeds = replay.seeds_for(places, start=start, new=new, texts=texts)
        settings = settings | {"accept": replay.Replayed(places)}
        methods[name] = Contestant(method, settings), seeds
        if source == PUBLISHED:
            methods[name + SECOND] = Contestant(method, settings | {"latent": "refresh"}), seeds
    return methods | {name: (each, [0] * texts) for name, each in UNVERIFIED.items()}


def priced(model, texts: list[bytes], source: str, machine, options) -> list[dict]:
    """A row for each method, all of them in turns, text by text."""
    size = {"start": 1 + len(texts[0]), "new": options.new, "texts": len(texts)}
    ways = {"plain": (PLAIN, [0] * len(texts))} | contestants(source, **size)
    if options.smoke:
        ways = {name: ways[name] for name in ("plain", "blt-s 8", "eagle 8") if name in ways}
    runs = [timed(model, text, at, ways, machine, options) for at, text in enumerate(texts)]
    rows = []
    for name, (way, _) in ways.items():
        own = [each[name] for each in runs]
        stats = Statistics.total([each["stats"] for each in own])
        counted = stats.to_dict()
        if "accept" in way.settings and not options.smoke:  # a trial run is too short
            replay.check(name, way.settings["accept"].by_position, counted["acceptance"])
        seconds = sum(each["seconds"] for each in own)
        speeds = [each["speed"] for each in own]
        rows.append({
            "method": name,
            "acceptance": counted["acceptance"],
            "bytes_per_round": counted["bytes_per_round"],
            "ms_per_byte": 1e3 * seconds / stats.bytes,
            "ms_per_round": 1e3 * seconds / stats.rounds,
            "over_floor": seconds / sum(each["floor"] for each in own),
            "speed": {
                "value": statistics.median(speeds), "interval": [min(speeds), max(speeds)],
            },
        })  # fmt: skip
    return rows


def timed(model, text: bytes, place: int, ways: dict, machine, options) -> dict:
    """Seconds, floor and counts of each method on the text at a place."""
    seeded = [way._replace(settings=way.settings | {"seeds": [seeds[place]]})
              for way, seeds in ways.values()]  # fmt: skip
    runs = dict(zip(
        ways, timing.in_turns(model, [text], seeded, new=options.new, repeats=options.repeats),
        strict=True,
    ))  # fmt: skip
    reading = machine._replace(flops_per_second=math.inf)
    found = {}
    for name, own in runs.items():
        compared = timing.compare(runs["plain"], own)
        found[name] = {
            "stats": own.stats,
            "seconds": compared.decode_seconds,
            "speed": compared.decode_speed.median,
            "floor": roofline.seconds(
                model, ways[name][0], own.stats, reading, rows=1, context=len(text)
            ),
        }  # fmt: skip
    return found


if __name__ == "__main__":
    main()
