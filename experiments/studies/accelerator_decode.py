"""What a byte and a round take at the shape of the 1B model on an accelerator.

Random weights in bfloat16, the entropy model in float32, patches of four bytes. Drafts are accepted
at the rates that Fast BLT publishes for its 3B, with one pass a round ("reuse") and as published
with two ("refresh"), or at those of `tiny` at temperature 1; the text means nothing, the passes and
their times do. "Operations": of the device, counted in a trace. "Floor": reading the weights and
caches of all passes at the bandwidth measured on the device. Without kernels XLA runs everything;
without graphs the host launches each operation, where a CUDA graph launches many at once.

    python -m experiments.studies.accelerator_decode [--methods M ...] [--rows N] [--without graphs]
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import statistics

from bytelax_kernels import gpus, native

import bytelax
from bytelax.measure import timing
from bytelax.measure.timing import Contestant
from bytelax.models.blt import BLT
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.patching import PatchingConfig
from experiments import study
from experiments.harness import (
    device_trace,
    floor,
    published_fast_blt,
    random_blt,
    replay,
    roofline,
)
from experiments.harness.one_b import one_b, random_params
from experiments.study import Column

PUBLISHED, OWN = "published", "of tiny"
SLOWEST = 24  # kinds of operations whose times are kept
METHODS = {
    "plain": ("ar", {}),
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "blt-s 16, predicted": ("blt-s", {"draft_length": 16, "latent": "predicted"}),
    "eagle 8": ("eagle", {"draft_length": 8}),
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
}
# With the acceptance that is replayed. Both methods run with one pass a round, and with the second
# one that renews the latent before each draft, as published.
REFRESH = {"latent": "refresh"}
ASKED = [
    ("plain", None, {}),
    ("blt-s 8", PUBLISHED, REFRESH),
    ("blt-dv 8, one step", PUBLISHED, {}),
    ("blt-s 8", PUBLISHED, {}),
    ("blt-dv 8, one step", PUBLISHED, REFRESH),
    ("blt-dv 16, one step", PUBLISHED, {}),
    ("blt-s 16, predicted", OWN, {}),
    ("eagle 8", OWN, {}),
    ("blt-s 8", OWN, {}),
    ("blt-s 16", PUBLISHED, REFRESH),
    ("blt-s 16", PUBLISHED, {}),
    ("blt-dv 16, one step", PUBLISHED, REFRESH),
]
# The shapes that decide most come first: a run that is cut short has measured those.
SHAPES = [(1, 512), (64, 512), (8, 512), (1, 2048), (8, 2048), (64, 2048)]
SETTINGS = [
    {"batch": batch, "context": context, "method": name, "source": source, **more}
    for batch, context in SHAPES
    for name, source, more in ASKED
]

COLUMNS = [
    Column("rows", "batch"),
    Column("context, bytes", "context"),
    Column("method", "method"),
    Column("without", "without"),
    Column("replayed acceptance", "source"),
    Column("latent", "latent"),
    Column("acceptance", "acceptance", ".1%"),
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("ms per byte and row", "ms_per_byte", ".3f"),
    Column("ms per round", "ms_per_round", ".3f"),
    Column("floor, ms per round", "floor_ms_per_round", ".3f"),
    Column("of the bandwidth", "bandwidth_share", ".0%"),
    Column("operations per round", "operations_per_round", ".0f"),
    Column("speed", "speed", ".2f"),
    Column("failed", "failed"),
]


@functools.cache
def model(toy: bool) -> bytelax.Model:
    """The 1B shape, or a toy's, with a small hash table, since only rows of it are read."""
    shape = random_blt.SHAPES["smallest"] if toy else one_b()
    config = dataclasses.replace(
        shape,
        patching=PatchingConfig(threshold=100.0, max_patch_length=4),
        hashing=HashConfig(vocab=5003),
        heads=random_blt.draft_heads(shape.decoder),
        decoder_input="embedding",
        block_size=16,
    )
    module = BLT(config)
    return bytelax.Model(module, random_params(module))


@functools.cache
def machine(megabytes: int) -> floor.Machine:
    return floor.measured("bfloat16", megabytes=megabytes, size=megabytes)


def contestant(setting: dict, new: int) -> tuple[Contestant, int]:
    """A method with the acceptance that it replays, and the seed that meets it in one row."""
    name, source = setting["method"], setting["source"]
    method, options = METHODS[name]
    options = options | {k: v for k, v in setting.items() if k == "latent"}
    if source is None:
        return Contestant(method, options), 0
    rates = published_fast_blt.acceptance() if source == PUBLISHED else replay.of_tiny(1.0)
    seed = replay.seeds_for(rates[name], start=1 + setting["context"], new=new, texts=1)[0]
    return Contestant(method, options | {"accept": replay.Replayed(rates[name])}), seed


def measure(setting: dict, *, new: int, repeats: int, toy: bool = False) -> dict:
    """One method at one shape; what does not run says why."""
    try:
        return _measure(setting, new=new, repeats=repeats, toy=toy)
    except Exception as error:  # of any kind, so that the other rows are still measured
        return {"failed": f"{type(error).__name__}: {str(error)[:300]}"}


def _measure(setting, *, new, repeats, toy):
    one, batch, context = model(toy), setting["batch"], setting["context"]
    chosen, seed = contestant(setting, new)
    seeded = chosen._replace(settings=chosen.settings | {"seeds": seed})
    texts = [bytes([65 + row % 26]) * context for row in range(batch)]
    (runs,) = timing.in_turns(one, texts, [seeded], new=new, repeats=repeats, batch=batch)
    stats, seconds = runs.stats, statistics.median(runs.decode_seconds)
    least = roofline.seconds(
        one, chosen, stats, machine(16 if toy else 2048)._replace(flops_per_second=math.inf),
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


NO_GRAPHS = "--xla_gpu_enable_command_buffer="


@contextlib.contextmanager
def without(what: str | None):
    """A context in which programs run without "kernels" of our own, or "graphs" of operations."""
    if what == "graphs":  # JAX reads it when it looks for devices
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {NO_GRAPHS}".strip()
    if what != "kernels":
        yield
        return
    with gpus.traced_for("none"), native.left_out():
        yield


def main():
    parser = study.parser(__doc__)
    parser.add_argument("--new", type=int, default=256, help="bytes generated for each row")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=[*METHODS])
    parser.add_argument("--rows", nargs="+", type=int, choices=(1, 8, 64), default=[1, 8, 64])
    parser.add_argument("--without", choices=("kernels", "graphs"))
    options = parser.parse_args()
    if options.smoke:
        options.new, options.repeats = 8, 1
    chosen = [
        each | ({"without": options.without} if options.without else {})
        for each in SETTINGS
        if each["method"] in options.methods and each["batch"] in options.rows
    ]
    if options.smoke:
        chosen = [each | {"batch": 2, "context": 24} for each in chosen[:1]]
    # Milliseconds of a byte in plain decoding, which is measured first.
    plain = {
        (row["setting"]["batch"], row["setting"]["context"]): row["ms_per_byte"]
        for report in study.reports("accelerator_decode", options.results)
        for row in report["rows"]
        if row["setting"]["method"] == "plain" and "ms_per_byte" in row
        if "without" not in row["setting"]
    }

    def row(setting):
        found = measure(setting, new=options.new, repeats=options.repeats, toy=options.smoke)
        shape = setting["batch"], setting["context"]
        if setting["method"] == "plain" and not options.without and "ms_per_byte" in found:
            plain[shape] = found["ms_per_byte"]
        if shape in plain and "ms_per_byte" in found:
            found["speed"] = plain[shape] / found["ms_per_byte"]
        print(setting, found, flush=True)
        return found

    with without(options.without):
        study.run(
            "accelerator_decode", options, chosen, row,
            conditions={"new": options.new, "repeats": options.repeats},
        )  # fmt: skip


if __name__ == "__main__":
    main()
