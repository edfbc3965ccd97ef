"""What a byte and a round take on larger weights, at acceptance measured or published elsewhere.

    python -m experiments.speed.wall_clock.run

A random BLT of a hundred million parameters in the proportions of the 1B; where JAX has an
accelerator, of the 1B's shape in bfloat16. Random weights accept nothing, so acceptance by position
is replayed: what the study of drafters measured on 64 natural prompts with the bundled models, and
what is published for Fast BLT's 3B model. The rows are a price for a given acceptance; the text
means nothing.
"""

import dataclasses
import math

import jax

from bytelax.measure import floor, synthetic, timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.models.hashing import HashConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.presets import BLT_1B
from experiments.harness import (
    evidence,
    published_fast_blt,
    random_blt,
    roofline,
    speed_table,
    study,
)

MINUTES = 15
METHODS = {
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
    "eagle 8": ("eagle", {"draft_length": 8}),
    "dflash 8": ("dflash", {}),
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
}
UNVERIFIED = {"blt-d 16, one step": Contestant("blt-d", {"block_size": 16, "unmask": "one-step"})}
# Rows of the study of drafters, by their names there.
MEASURED = {
    "blt-s 8": "blt-s",
    "eagle 8": "sequential",
    "dflash 8": "block",
    "blt-dv 8, one step": "blt-dv",
}
SOURCES = ("of tiny, temperature 0", "of tiny, temperature 1", "as published")
CUT = {
    "decoder_input": "embedding",
    "block_size": 16,
    "patching": PatchingConfig(max_patch_length=8),
}
SHAPES = {
    "smallest": random_blt.config(
        encoder=(32, 1, 2), decoder=(32, 1, 2), global_=(64, 1, 2), patcher=(24, 1, 3)
    ),
    # As many layers as the 1B, of a quarter of its widths.
    "100M": random_blt.config(
        encoder=(256, 1, 4), decoder=(256, 9, 4), global_=(512, 25, 4), patcher=(192, 14, 3)
    ),
    # Rows of the hash table are looked up: a small one does.
    "1B": dataclasses.replace(BLT_1B, hashing=HashConfig(vocab=5003)),
}


def acceptance(source):
    """Acceptance by position of each method, to replay.

    Args:
      source: one of `SOURCES`. One rate is published for all places of a draft.
    """
    if source == "as published":
        return published_fast_blt.acceptance()
    rows = evidence.drafters(float(source.split()[-1]))
    return {name: _falling(rows[row]["acceptance_by_position"]) for name, row in MEASURED.items()}


def contestants(replayed):
    """Methods that verify, with acceptance replayed, and one that does not."""
    methods = {}
    for name, places in replayed.items():
        method, settings = METHODS[name]
        methods[name] = Contestant(method, settings | {"accept": synthetic.Replayed(tuple(places))})
    return methods | UNVERIFIED


def measure(model, texts, methods, machine, how):
    """Plain decoding and all methods in turns."""
    itemsize = jax.tree.leaves(model.params)[0].dtype.itemsize
    methods = {"plain": PLAIN} | methods
    turns = timing.in_turns(model, texts, list(methods.values()), **how)
    runs = dict(zip(methods, turns, strict=True))
    rows = {}
    for name, own in runs.items():
        timed = timing.beside(runs["plain"], own)
        figures = timing.figures(timed)
        bound = {"rows": 1, "context": len(texts[0]), "itemsize": itemsize}
        least = {
            kind: roofline.seconds(model, methods[name], own.stats, limits, **bound)
            for kind, limits in (
                ("floor", machine._replace(flops_per_second=math.inf)),
                ("roofline", machine),
            )
        }
        stats = own.stats
        rows[name] = {
            **{
                kept: figures[kept]
                for kept in (
                    "acceptance", "acceptance_by_position", "bytes_per_round", "bytes_per_patch",
                    "decode_speed", "decode_speed_range", "same_outputs", "lossless",
                )
            },
            "ms_per_byte": 1e3 * timed.decode_seconds / stats.bytes,
            "ms_per_round": 1e3 * timed.decode_seconds / stats.rounds,
            "floor_ms_per_byte": 1e3 * least["floor"] / stats.bytes,
            "over_floor": timed.decode_seconds / least["floor"],
            "over_roofline": timed.decode_seconds / least["roofline"],
        }  # fmt: skip
    return {"methods": rows}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--context", type=int, default=256, help="bytes of the prompt")
    options.add_argument("--new", type=int, default=512, help="bytes generated")
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
        model, text = random_blt.own_text(
            model, size, bytes_per_patch=options.bytes_per_patch, seed=0,
            rewrites=0 if options.smoke else 1,
        )  # fmt: skip
        methods = contestants(acceptance(setting["acceptance"]))
        if options.smoke:
            methods = {name: methods[name] for name in ("blt-s 8", "eagle 8") if name in methods}
        return measure(model, [text[: options.context]], methods, machine, how)

    study.run(
        path,
        {
            "context": options.context, "temperature": 0.0, "device": jax.devices()[0].device_kind,
            **how,
        },
        [{"shape": shape, "acceptance": source} for source in SOURCES],
        priced,
        markdown=markdown,
    )  # fmt: skip


def _falling(places):
    """Shares of the drafts that reached each place; the last rounds of a text are cut short."""
    return [min([1.0, *places[: place + 1]]) for place in range(len(places))]


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
            context=report["context"], temperature=report["temperature"], lossless="replayed",
            machine=report["machine"] if report["device"] == "cpu" else report["device"],
        )  # fmt: skip


def markdown(report):
    lines = [
        "# Wall clock",
        "",
        f"{report['device']}, batch 1, prompts of {report['context']} bytes, {report['new']} new "
        f"bytes, temperature {report['temperature']:g}, {study.machine(report)}. Speed: median of "
        f"{report['repeats']} ratios to plain decoding (W = 1, with caches), in turns in one "
        "process, taking in the prompts left out. Floor: what the weights and caches that a "
        "method's passes read take at the bandwidth measured on this machine; roofline: the same, "
        "or multiplying, whichever takes longer.",
    ]
    for row in report["rows"]:
        setting = row["setting"]
        plain = row["methods"]["plain"]
        patch = plain["bytes_per_patch"]
        patches = f", {patch:.2f} bytes a patch" if patch else ""
        title = f"Random BLT, {setting['shape']}, acceptance {setting['acceptance']}"
        header = (
            "method", "lossless", "accepted %", "bytes/round", "ms/byte", "ms/round",
            "floor, ms/byte", "over the floor", "over the roofline", "speed", "range",
        )  # fmt: skip
        cells = [
            (
                name,
                "yes" if m["lossless"] else "no",
                None if m["acceptance"] is None else f"{100 * m['acceptance']:.1f}",
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
