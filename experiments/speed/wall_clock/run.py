"""What a byte and a round take, and how near that is to reading everything once.

    python -m experiments.speed.wall_clock.run --data DIR

Every method on the bundled models, timed on two held-out prompts of each of five genres, and on a
random BLT of a hundred million parameters in the proportions of the 1B (where JAX has an
accelerator, on the 1B in bfloat16). Random weights accept nothing: there the acceptance of the
bundled models on 64 prompts is replayed, and that published for Fast BLT. Those rows are a price
for a given acceptance; the text means nothing, and no prompt decides them.
"""

import dataclasses
import json
import math

import jax

from bytelax import load
from bytelax.measure import floor, synthetic, timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.models.hashing import HashConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.presets import BLT_1B
from experiments.harness import (
    evidence,
    intervals,
    published_fast_blt,
    random_blt,
    roofline,
    speed_table,
    study,
)
from experiments.harness.bundled_data import prompts

MINUTES = 15
BLT = {
    "blt-s 8": ("blt-s", {"draft_length": 8}),
    "blt-s 16": ("blt-s", {"draft_length": 16}),
}
BLT_D = {
    "blt-dv 8, one step": ("blt-dv", {"block_size": 8}),
    "blt-dv 16, one step": ("blt-dv", {"block_size": 16}),
    "blt-d 16, one step": ("blt-d", {"block_size": 16, "unmask": "one-step"}),
}
BYTE_LM = {
    "early-exit 4": ("early-exit", {"exit_layer": 6, "draft_length": 4}),
    "two-byte": ("two-byte", {}),
    "medusa": ("medusa", {}),
    "composed 4": ("composed", {"exit_layer": 6, "draft_length": 4}),
    "layer-skip 4": ("layer-skip", {"draft_length": 4}),
    "eagle 4": ("eagle", {"draft_length": 4}),
    "lookup 8": ("lookup", {"draft_length": 8}),
    "draft-model 4": ("draft-model", {"draft_length": 4, "draft_model": "tiny-draft"}),
}
BUNDLED = {"tiny": BLT, "tiny-d": BLT_D, "tiny-lm": BYTE_LM}
MEASURED, PUBLISHED = "as measured", "as published"
SOURCES = (MEASURED, PUBLISHED)  # of the acceptance that is replayed
COPIES = 4  # of the text of a random model
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


def acceptance(source, path):
    """Acceptance by position of each setting.

    Args:
      source: `MEASURED`, from the rows of the bundled BLTs in this study, or `PUBLISHED`, all
        places alike, as one rate is printed.
      path: of the study's rows so far.
    """
    rows = json.loads(path.read_text())["rows"]
    counted = {
        name: figures
        for row in rows
        if row["setting"].get("model") in ("tiny", "tiny-d")
        for name, figures in row["counted"].items()
    }
    published = published_fast_blt.acceptance()
    names = [name for name in published if name in counted]
    if source == MEASURED:
        return {name: _falling(counted[name]["acceptance_by_position"]) for name in names}
    return {name: published[name] for name in names}


def contestants(kind, replayed=None):
    """Methods by name: as they are, or with acceptance replayed."""
    methods = {name: Contestant(*chosen) for name, chosen in kind.items()}
    for name, places in (replayed or {}).items():
        method, settings = kind[name]
        methods[name] = Contestant(method, settings | {"accept": synthetic.Replayed(tuple(places))})
    return methods


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
    options.add_argument("--context", type=int, default=256, help="bytes of a prompt")
    options.add_argument("--prompts", type=int, default=evidence.PROMPTS)
    options.add_argument("--new", type=int, default=128, help="bytes generated a prompt")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--bytes-per-patch", type=float, default=4.0, help="of random models")
    options = options.parse_args()
    if options.smoke:
        options.prompts, options.context, options.new, options.repeats = 5, 24, 8, 1
    how = {"new": options.new, "repeats": options.repeats}
    accelerator = jax.default_backend() != "cpu"
    dtype = "bfloat16" if accelerator else "float32"
    machines = {
        kind: floor.measured(kind, megabytes=16 if options.smoke else 512)
        for kind in {"float32", dtype}
    }
    texts = prompts(options.data, options.prompts, options.context)
    path = options.results / f"{jax.default_backend() if accelerator else study.MAIN}.json"
    shape = "1B" if accelerator else "100M"
    shape = "smallest" if options.smoke else shape

    def first(kind):
        return dict(list(kind.items())[:1]) if options.smoke else kind

    def trained(setting):
        name = setting["model"]
        methods = with_draft_model(contestants(first(BUNDLED[name])))
        model = load(name, dtype="float32")
        timed = measure(model, evidence.few(texts), methods, machines["float32"], how)
        return timed | {"counted": counted(model, texts, methods, options.new)}

    def priced(setting):
        replayed = acceptance(setting["acceptance"], path)
        methods = contestants(first(BLT | BLT_D), replayed)
        model, text = own_text(setting["shape"], dtype, options)
        return measure(model, [text] * COPIES, methods, machines[dtype], how)

    study.run(
        path,
        {
            "context": options.context, "prompts": len(texts), "temperature": 0.0,
            "timed": len(evidence.few(texts)), "device": jax.devices()[0].device_kind, **how,
        },
        [{"model": name} for name in first(BUNDLED)]
        + [{"shape": shape, "acceptance": source} for source in SOURCES],
        lambda setting: priced(setting) if "shape" in setting else trained(setting),
        markdown=markdown,
    )  # fmt: skip


def with_draft_model(methods):
    """The same, with the model that `draft-model` drafts with."""
    small = load("tiny-draft", dtype="float32")
    return {
        name: Contestant(method, settings | {"draft_model": small})
        if "draft_model" in settings
        else Contestant(method, settings)
        for name, (method, settings) in methods.items()
    }


def counted(model, texts, methods, new):
    """What each method keeps on all prompts."""
    return {
        name: evidence.figures(
            evidence.decoded(
                model, [text for _, text in texts], contestant, new=new, temperature=0.0
            )
        )
        for name, contestant in methods.items()
    }


def own_text(shape, dtype, options):
    """A random model of a shape, and the beginning of its own text."""
    model = random_blt.model(dataclasses.replace(SHAPES[shape], **CUT), 0, dtype)
    model, text = random_blt.own_text(
        model, options.context + options.new, bytes_per_patch=options.bytes_per_patch, seed=0,
        rewrites=0 if options.smoke else 1,
    )  # fmt: skip
    return model, text[: options.context]


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
        if "shape" not in setting or not verified:
            continue
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
        *evidence.warning(report),
        f"{report['device']}, batch 1, temperature {report['temperature']:g}, "
        f"{evidence.conditions(report | {'prompt_bytes': report['context']})}",
        "",
        *evidence.LEGEND,
        evidence.latents(),
        evidence.timed(report),
        "- Floor: what the weights and caches that a method's passes read take at the bandwidth "
        "measured on this machine. Roofline: the same, or multiplying, whichever takes longer.",
        "- Random models have no text of their own: how much of a draft they keep is drawn from a "
        "given acceptance, so no prompt decides their speeds.",
    ]
    for row in report["rows"]:
        setting = row["setting"]
        patch = row["methods"]["plain"]["bytes_per_patch"]
        patches = f", {patch:.2f} bytes a patch" if patch else ""
        if "shape" in setting:
            title = f"Random BLT, {setting['shape']}, acceptance {setting['acceptance']}"
        else:
            title = f"`{setting['model']}`"
        lines += ["", f"## {title}{patches}", "", *times(row["methods"])]
        if "counted" in row:
            lines += ["", *keeps(row["counted"], report["prompts"])]
    return "\n".join([*lines, ""])


def times(methods):
    """Lines of a table of what a byte and a round take."""
    header = (
        "method", "lossless", "bytes/round", "ms/byte", "ms/round", "floor, ms/byte",
        "over the floor", "over the roofline", "speed", "range",
    )  # fmt: skip
    cells = [
        (
            name,
            "yes" if m["lossless"] else "no",
            *(f"{m[figure]:.2f}" for figure in ("bytes_per_round", "ms_per_byte",
              "ms_per_round")),
            f"{m['floor_ms_per_byte']:.3f}",
            *(f"{m[figure]:.2f}" for figure in ("over_floor", "over_roofline", "decode_speed")),
            "{:.2f} to {:.2f}".format(*m["decode_speed_range"]),
        )
        for name, m in methods.items()
    ]  # fmt: skip
    return study.table(header, cells)


def keeps(counted, prompts):
    """Lines of a table of what the methods keep on all prompts."""
    return study.table(
        ("method", "acceptance", "bytes a round", "without loops", "loops"),
        [
            (
                name,
                *(
                    intervals.shown(figures[kind])
                    for kind in ("acceptance", "bytes_per_round", "bytes_per_round_without_loops")
                ),
                f"{figures['loops']}/{prompts}",
            )
            for name, figures in counted.items()
        ],
    )


if __name__ == "__main__":
    main()
