"""What a byte and a round take at the shape of the 1B model on an accelerator.

    python -m experiments.accelerator.decode.run

Weights are random, in bfloat16, with patches of four bytes. Drafts are accepted at the rates that
Fast BLT publishes for its 3B model, or at those of the trained `tiny` at temperature 1, so the text
means nothing, and the passes and their times do. Operations of the device are counted in a trace;
the floor is the time to read the weights and caches of all passes at the bandwidth measured on the
device, the entropy model in float32.
"""

import dataclasses
import functools
import itertools
import math
import statistics

import jax

import bytelax
from bytelax.measure import timing
from bytelax.measure.timing import Contestant
from bytelax.models.blt import BLT
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.patching import PatchingConfig
from experiments.harness import (
    device_trace,
    floor,
    published_fast_blt,
    random_blt,
    replay,
    roofline,
    study,
)
from experiments.harness.one_b import one_b, random_params

# The XLA flags that `experiments.accelerator.run` tries, by the file of their results.
FLAGS = {
    "results": "the defaults",
    "graphs": "the whole loop as one CUDA graph",
    "autotune_off": "no autotuning",
}
RESULTS = tuple(FLAGS)
PARTIAL = True
SLOWEST = 24  # kernels whose times are kept
PUBLISHED, OWN = "published", "of tiny"
METHODS = {
    "plain": ("ar", {}),
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
    "eagle 8": ("eagle", {"draft_length": 8}),
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
}
# With the acceptance that is replayed. What was published refreshes the latent before each draft.
ASKED = [
    ("plain", None, {}),
    ("blt-s 8", PUBLISHED, {"latent": "refresh"}),
    ("blt-dv 8, one step", PUBLISHED, {}),
    ("blt-dv 16, one step", PUBLISHED, {}),
    ("blt-s 16, predicted", OWN, {}),
    ("eagle 8", OWN, {}),
    ("blt-s 8", OWN, {}),
    ("blt-s 16", PUBLISHED, {"latent": "refresh"}),
]
# The shapes that decide most come first: a run that is cut short has measured those.
SHAPES = [(1, 512), (64, 512), (8, 512), (1, 2048), (8, 2048), (64, 2048)]
SETTINGS = [
    {"batch": batch, "context": context, "method": name, "acceptance": source, **more}
    for batch, context in SHAPES
    for name, source, more in ASKED
]
SMOKE = [each | {"batch": 2, "context": 24} for each in SETTINGS[:2]]


@functools.cache
def model(layers: int | None) -> bytelax.Model:
    """The 1B shape with a small hash table, since only rows of it are read."""
    patching = PatchingConfig(threshold=100.0, max_patch_length=4)
    config = one_b(layers, block_size=16, patching=patching)
    heads = random_blt.draft_heads(config.decoder)
    module = BLT(dataclasses.replace(config, hashing=HashConfig(vocab=5003), heads=heads))
    return bytelax.Model(module, random_params(module))


@functools.cache
def machine(megabytes: int) -> floor.Machine:
    return floor.measured("bfloat16", megabytes=megabytes, size=megabytes)


def contestant(setting: dict, new: int) -> tuple[Contestant, int]:
    """A method with the acceptance that it replays, and the seed that meets it in one row."""
    name, source = setting["method"], setting["acceptance"]
    method, options = METHODS[name]
    options = options | {k: v for k, v in setting.items() if k == "latent"}
    if source is None:
        return Contestant(method, options), 0
    rates = published_fast_blt.acceptance() if source == PUBLISHED else replay.of_tiny(1.0)
    seed = replay.seeds_for(rates[name], start=1 + setting["context"], new=new, texts=1)[0]
    return Contestant(method, options | {"accept": replay.Replayed(rates[name])}), seed


def measure(setting: dict, *, new: int, repeats: int, layers: int | None, megabytes: int) -> dict:
    """One method at one shape; what does not run says why."""
    try:
        return _measure(setting, new=new, repeats=repeats, layers=layers, megabytes=megabytes)
    except Exception as error:  # of any kind, so that the other rows are still measured
        return {"failed": f"{type(error).__name__}: {str(error)[:300]}"}


def _measure(setting, *, new, repeats, layers, megabytes):
    one, batch, context = model(layers), setting["batch"], setting["context"]
    chosen, seed = contestant(setting, new)
    seeded = chosen._replace(settings=chosen.settings | {"seeds": seed})
    texts = [bytes([65 + row % 26]) * context for row in range(batch)]
    (runs,) = timing.in_turns(one, texts, [seeded], new=new, repeats=repeats, batch=batch)
    stats, seconds = runs.stats, statistics.median(runs.decode_seconds)
    least = roofline.seconds(
        one, chosen, stats, machine(megabytes)._replace(flops_per_second=math.inf),
        rows=batch, context=context, itemsize=2, patcher_itemsize=4,
    )  # fmt: skip

    def again():
        bytelax.generate(
            one, texts, method=chosen.method, max_new_bytes=new, allow_eos=False, **seeded.settings
        )

    rounds, kinds = stats.batch_windows, device_trace.operations(again)
    return {
        "acceptance": stats.to_dict()["acceptance"],
        "bytes_per_round": stats.bytes / stats.rounds,
        "ms_per_byte": 1e3 * seconds * batch / stats.bytes,
        "ms_per_round": 1e3 * seconds / rounds,
        "floor_ms_per_round": 1e3 * least / rounds,
        "bandwidth_share": least / seconds,
        "operations_per_round": sum(kind.count for kind in kinds.values()) / rounds,
        "slowest": {
            name: [kind.count / rounds, kind.microseconds / rounds]
            for name, kind in itertools.islice(kinds.items(), SLOWEST)
        },
    }


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--new", type=int, default=256, help="bytes generated a prompt")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--name", default="results", choices=RESULTS, help="file of results")
    options = options.parse_args()
    small = options.smoke
    how = {"new": 8 if small else options.new, "repeats": 1 if small else options.repeats}
    study.run(
        options.results / f"{options.name}.json",
        {"device": jax.devices()[0].device_kind, "flags": options.name, **how},
        SMOKE if small else SETTINGS,
        lambda setting: measure(
            setting, **how, layers=1 if small else None, megabytes=16 if small else 2048
        ),
        markdown=markdown,
        partial=PARTIAL,
    )


def markdown(report):
    plain = {
        (row["setting"]["batch"], row["setting"]["context"]): row["ms_per_byte"]
        for row in report["rows"]
        if row["setting"]["method"] == "plain" and "failed" not in row
    }
    header = (
        "batch", "context", "method", "acceptance", "accepted, %", "bytes/round",
        "ms/byte and row", "ms/round", "floor, ms/round", "of the bandwidth", "operations/round",
        "speed",
    )  # fmt: skip
    lines = []
    for row in report["rows"]:
        setting = row["setting"]
        place = setting["batch"], setting["context"]
        begin = (*place, setting["method"], setting["acceptance"])
        if "failed" in row:
            lines.append((*begin, row["failed"], *[None] * 7))
            continue
        speed = plain[place] / row["ms_per_byte"] if place in plain else None
        lines.append((
            *begin, row["acceptance"] and f"{100 * row['acceptance']:.1f}",
            f"{row['bytes_per_round']:.2f}",
            *(f"{row[name]:.3f}" for name in ("ms_per_byte", "ms_per_round", "floor_ms_per_round")),
            f"{row['bandwidth_share']:.0%}", f"{row['operations_per_round']:.0f}",
            speed and f"{speed:.2f}",
        ))  # fmt: skip
    return "\n".join([
        "# Decoding at the shape of the 1B model", "",
        f"{report['device']}, jax {report['jax']}, bfloat16, {report['new']} new bytes a row, the "
        f"median of {report['repeats']} runs, without prefill; XLA flags: "
        f"{FLAGS[report['flags']]}. Acceptance is replayed: that published for Fast BLT's 3B "
        "model, or that of `tiny` at temperature 1. At the published one `blt-s` renews the latent "
        "before each draft, as published. Floor: reading the weights and caches of a round's "
        "passes once, at the bandwidth measured on this device. Speed: beside plain decoding of as "
        "many rows. "
        f"{len(lines)} of {len(SETTINGS)} settings are measured.",
        "",
        *study.table(header, lines), "",
        *slowest(report["rows"]),
    ])  # fmt: skip


def slowest(rows):
    """The kinds of operations that take the most time, for the rows that have them."""
    lines = [
        (*(row["setting"][name] for name in ("batch", "context", "method", "acceptance")), kind,
         f"{count:.1f}", f"{microseconds:.0f}", f"{microseconds / count:.1f}")
        for row in rows
        for kind, (count, microseconds) in row.get("slowest", {}).items()
    ]  # fmt: skip
    if not lines:
        return []
    header = (
        "batch", "context", "method", "acceptance", "operations", "a round", "microseconds",
        "of one",
    )  # fmt: skip
    return ["## What takes the most time", "", *study.table(header, lines), ""]


if __name__ == "__main__":
    main()
