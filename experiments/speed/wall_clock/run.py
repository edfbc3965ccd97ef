"""What a byte and a round take on larger weights, at acceptance measured or published elsewhere.

    python -m experiments.speed.wall_clock.run

A random BLT of a hundred million parameters in the proportions of the 1B; where JAX has an
accelerator, of the 1B's shape in bfloat16. Random weights accept nothing, so acceptance by position
is replayed: what two studies measured on 64 natural prompts with the bundled models, and
what is published for Fast BLT's 3B model. The texts have seeds under which the share of drafted
bytes that is kept is the one asked for, and a run in which it is not ends the study. The rows are a
price for a given acceptance; the text means nothing.
"""

import dataclasses
import math
import statistics

import jax

from bytelax.engine.results import Statistics
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.presets import BLT_1B
from experiments.harness import (
    floor,
    published_fast_blt,
    random_blt,
    replay,
    roofline,
    speed_table,
    study,
)

MINUTES = 20
METHODS = {
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
    "eagle 8": ("eagle", {"draft_length": 8}),
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
}
UNVERIFIED = {"blt-d 16, one step": Contestant("blt-d", {"block_size": 16, "unmask": "one-step"})}
SOURCES = ("of tiny, temperature 0", "of tiny, temperature 1", "as published")
CUT = {
    "decoder_input": "embedding",
    "block_size": 16,
    "patching": PatchingConfig(max_patch_length=8),
}
# Rows of the hash table are looked up: a small one does.
SHAPES = random_blt.SHAPES | {"1B": dataclasses.replace(BLT_1B, hashing=HashConfig(vocab=5003))}


def acceptance(source):
    """Acceptance by position of each method, to replay.

    Args:
      source: one of `SOURCES`. One rate is published for all places of a draft.
    """
    if source == "as published":
        return published_fast_blt.acceptance()
    return replay.of_tiny(float(source.split()[-1]))


def contestants(source, *, start, new, texts):
    """Methods that verify, with acceptance replayed, and one that does not; each with its seeds.

    Rates of `blt-s` were published for the algorithm that refreshes the latent before each draft.

    Args:
      source: one of `SOURCES`.
      start: ids of each prompt, BOS included.
      new: bytes generated for each text.
      texts: number of texts, each of which has its seed.
    """
    methods = {}
    for name, places in acceptance(source).items():
        method, settings = METHODS[name]
        if method == "blt-s" and source == "as published":
            settings = settings | {"latent": "refresh"}
        seeds = replay.seeds_for(places, start=start, new=new, texts=texts)
        rule = replay.Replayed(places)
        methods[name] = Contestant(method, settings | {"accept": rule}), seeds
    return methods | {name: (each, [0] * texts) for name, each in UNVERIFIED.items()}


def measure(model, texts, source, machine, how, *, only=None):
    """Plain decoding and all methods in turns, text by text."""
    asked = acceptance(source)
    (length,) = {len(text) for text in texts}  # on which seeds depend
    size = {"start": 1 + length, "new": how["new"], "texts": len(texts)}
    seeded = {"plain": (PLAIN, [0] * len(texts))} | contestants(source, **size)
    seeded = {name: each for name, each in seeded.items() if only is None or name in only}
    methods = {name: method for name, (method, _) in seeded.items()}
    runs = [
        _timed(model, text, machine, how, methods, [seeds[place] for _, seeds in seeded.values()])
        for place, text in enumerate(texts)
    ]
    rows = {}
    for name in runs[0]:
        own = [text[name] for text in runs]
        stats = Statistics.total([each["stats"] for each in own])
        if name in asked and only is None:  # a trial run is too short
            replay.check(name, asked[name], stats.to_dict()["acceptance"])
        seconds, floor_, roof = (
            sum(each[of] for each in own) for of in ("seconds", "floor", "roofline")
        )
        speeds = [each["speed"] for each in own]
        counted = stats.to_dict()
        rows[name] = {
            **{
                kept: counted[kept]
                for kept in ("acceptance", "acceptance_by_position", "bytes_per_round",
                             "bytes_per_patch")
            },
            "asked": None if name not in asked else sum(asked[name]) / len(asked[name]),
            "decode_speed": statistics.median(speeds),
            "decode_speed_range": [min(speeds), max(speeds)],
            "lossless": own[0]["lossless"],
            "ms_per_byte": 1e3 * seconds / stats.bytes,
            "ms_per_round": 1e3 * seconds / stats.rounds,
            "floor_ms_per_byte": 1e3 * floor_ / stats.bytes,
            "over_floor": seconds / floor_,
            "over_roofline": seconds / roof,
        }  # fmt: skip
    return {"methods": rows}


def _timed(model, text, machine, how, methods, seeds):
    """Seconds, bounds and counts of each method on one text."""
    itemsize = jax.tree.leaves(model.params)[0].dtype.itemsize
    ways = [
        way._replace(settings=way.settings | {"seeds": seed})
        for way, seed in zip(methods.values(), seeds, strict=True)
    ]
    runs = dict(zip(methods, timing.in_turns(model, [text], ways, **how), strict=True))
    found = {}
    for name, own in runs.items():
        timed = timing.beside(runs["plain"], own)
        bound = {"rows": 1, "context": len(text), "itemsize": itemsize}
        least = {
            kind: roofline.seconds(model, methods[name], own.stats, limits, **bound)
            for kind, limits in (
                ("floor", machine._replace(flops_per_second=math.inf)),
                ("roofline", machine),
            )
        }
        found[name] = least | {
            "stats": own.stats,
            "seconds": timed.decode_seconds,
            "speed": timed.decode_speed.median,
            "lossless": timed.lossless,
        }
    return found


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--context", type=int, default=256, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=256, help="bytes generated for each text")
    options.add_argument("--texts", type=int, default=4)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--bytes-per-patch", type=float, default=4.0, help="of random models")
    options = options.parse_args()
    how = {"new": options.new, "repeats": options.repeats}
    accelerator = jax.default_backend() != "cpu"
    dtype = "bfloat16" if accelerator else "float32"
    machine = floor.measured(dtype, megabytes=16 if options.smoke else 512)
    path = options.results / f"{jax.default_backend() if accelerator else study.MAIN}.json"
    shape = "1B" if accelerator else "100M"
    shape = "smallest" if options.smoke else shape

    def priced(setting):
        chosen = SHAPES[setting["shape"]]
        chosen = dataclasses.replace(chosen, heads=random_blt.draft_heads(chosen.decoder), **CUT)
        model = random_blt.model(chosen, 0, dtype)
        size = options.context + options.new
        model, *texts = random_blt.own_texts(
            model, size, bytes_per_patch=options.bytes_per_patch, count=options.texts,
            rewrites=0 if options.smoke else 1,
        )  # fmt: skip
        only = ("plain", "blt-s 8", "eagle 8") if options.smoke else None
        beginnings = [text[: options.context] for text in texts]
        return measure(model, beginnings, setting["acceptance"], machine, how, only=only)

    study.run(
        path,
        {
            "context": options.context, "temperature": 0.0, "texts": options.texts,
            "device": jax.devices()[0].device_kind, **how,
        },
        [
            {"shape": shape, "acceptance": source}
            for source in (SOURCES[1:] if options.smoke else SOURCES)
        ],
        priced,
        markdown=markdown,
    )  # fmt: skip


def headline(report):
    """The fastest method that verifies on random weights of a larger size, at a given acceptance.

    What is replayed there is when drafts are kept, so that the text is not the model's.
    """
    for row in report["rows"]:
        setting, methods = row["setting"], row["methods"]
        verified = {n: m for n, m in methods.items() if not n.startswith(("plain", "blt-d "))}
        best = max(verified, key=lambda n: verified[n]["decode_speed"])
        yield speed_table.row(
            report, methods[best], method=best, baseline="plain, W = 1", batch=1,
            model=f"random, {setting['shape']}; acceptance {setting['acceptance']}, replayed",
            context=report["context"], temperature=None, lossless="replayed",
            over=f"{report['texts']} texts",
            machine=report["machine"] if report["device"] == "cpu" else report["device"],
        )  # fmt: skip


def markdown(report):
    lines = [
        "# Wall clock",
        "",
        f"{report['device']}, batch 1, {report['texts']} prompts of {report['context']} bytes, "
        f"{report['new']} new bytes each, temperature {report['temperature']:g}, "
        f"{study.machine(report)}. Speed: the median over texts of the median of "
        f"{report['repeats']} ratios to plain decoding (W = 1, with caches), in turns in one "
        "process, without the time that the prompts take; the range is that over texts. Asked: the "
        "share of drafted bytes that was to be kept. Floor: what the weights and caches that a "
        "method's passes read take at the bandwidth measured on this machine; roofline: the same, "
        "or multiplying, whichever takes longer.",
        "",
        published_fast_blt.LEGEND,
    ]
    for row in report["rows"]:
        setting = row["setting"]
        plain = row["methods"]["plain"]
        patch = plain["bytes_per_patch"]
        patches = f", {patch:.2f} bytes per patch" if patch else ""
        title = f"Random BLT, {setting['shape']}, acceptance {setting['acceptance']}"
        header = (
            "method", "lossless", "asked %", "accepted %", "published %", "bytes/round", "ms/byte",
            "ms/round", "floor, ms/byte", "over the floor", "over the roofline", "speed", "range",
        )  # fmt: skip
        cells = [
            (
                name,
                "yes" if m["lossless"] else "no",
                *(None if m[share] is None else f"{100 * m[share]:.2f}"
                  for share in ("asked", "acceptance")),
                None if name in replay.OF_LATENTS and "predicted" in name
                else published_fast_blt.shown(*METHODS.get(name, (name, {}))),
                *(f"{m[figure]:.2f}" for figure in ("bytes_per_round", "ms_per_byte",
                  "ms_per_round")),
                f"{m['floor_ms_per_byte']:.3f}",
                *(f"{m[figure]:.2f}" for figure in ("over_floor", "over_roofline",
                  "decode_speed")),
                "{:.2f} to {:.2f}".format(*m["decode_speed_range"]),
            )
            for name, m in row["methods"].items()
        ]  # fmt: skip
        lines += ["", f"## {title}{patches}", "", *study.table(header, cells)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    main()
