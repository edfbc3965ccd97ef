"""What BLT-S keeps and reads by how far the decoder sees, in small BLTs trained on equal bytes.

    python -m experiments.training.decoder_window.train window8-layers3 --data DIR --runs RUNS
                                                                          and the other stages
    python -m experiments.training.decoder_window.run --data DIR --runs RUNS

Decoders whose attention spans 8, 32, 128 and 512 bytes, of 3 and 6 layers, with two seeds for both
ends. Of every model: bits per byte of held-out text, what worse latents cost it, and what `blt-s`
keeps and reads on 64 held-out prompts of five genres beside plain decoding. Nothing is timed.
Models that are not trained yet are left out and named; rows of models that were trained on other
machines stay.
"""

import functools
import json
import pathlib

import jax
import numpy as np

from bytelax import generate, load, vocab
from bytelax.measure.timing import PLAIN, Contestant
from experiments.harness import (
    bundled_data,
    evidence,
    intervals,
    latent_costs,
    loops,
    provenance,
    published_fast_blt,
    study,
)
from experiments.training.decoder_window import boundary
from experiments.training.decoder_window.train import STAGES

DRAFTS, TEMPERATURES = (4, 8, 16), (0.0, 1.0)
STRETCH, STRETCHES, BATCH = 512, 32, 8  # ids of a stretch, as in training; of a text; at a time
COSTS = {
    "mean": "a mean latent",
    "other": "another text's",
    "stale_1": "one patch old",
    "stale_4": "four patches old",
}
LEAST_COST, LEAST_WINDOW = 0.1, 128  # the gate: bits that a mean latent costs, bytes seen


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--runs", type=pathlib.Path, required=True, help="what train.py made")
    evidence.add_options(options, new=96, timed=False)
    options.set_defaults(split=bundled_data.VALID)  # the shape of `tiny` is chosen by it
    options = evidence.parsed(options)
    stretches, drafts = STRETCHES, DRAFTS
    if options.smoke:
        stretches, drafts = BATCH, DRAFTS[:1]
    texts = bundled_data.held_out(options.data, None, options.split)
    prompts = evidence.prompts(options)
    results = options.results / "results.json"

    def measure(setting):
        model = load(options.runs / setting["stage"] / "model", dtype="float32")
        bits = latent_costs.of_batches(
            model, list(texts.values()), length=STRETCH, each=stretches, batch=BATCH
        )
        of_genres = np.split(np.array(bits), len(texts))
        return {
            "weights": model.weights_per_pass._asdict(),
            "window": model.config.decoder.window,
            "bits": latent_costs.figures(bits),
            "mean_by_genre": {
                genre: latent_costs.figures(own)["mean"]
                for genre, own in zip(texts, of_genres, strict=True)
            },
            **decoded(model, [text for _, text in prompts], drafts, options.new),
        }

    study.run(
        results,
        {
            **evidence.measured_on(options, prompts),
            "stretch": STRETCH, "stretches": stretches * len(texts), "drafts": drafts,
        },
        settings(options.runs, json.loads(results.read_text())["rows"] if results.exists() else []),
        measure,
        markdown=markdown,
        timed=False,
    )  # fmt: skip


def settings(runs, rows):
    """Those of all models that are here, or that were measured where they were trained.

    A model that was trained on or anew is measured anew.
    """
    weights = {row["setting"]["stage"]: row["setting"]["weights"] for row in rows}
    for stage in STAGES:
        if (model := runs / stage / "model").exists():
            weights[stage] = provenance.files(model)
    return [{"stage": stage, "weights": weights[stage]} for stage in STAGES if stage in weights]


def decoded(model, prompts, drafts, new):
    """Figures of plain decoding and of `blt-s` by the bytes that it drafts, at each temperature.

    Of all prompts, and of those whose continuation does not end in a loop.
    """
    plain = continued(model, prompts, PLAIN, new)
    ways = {str(k): Contestant("blt-s", {"draft_length": k, "origins": True}) for k in drafts}
    rows = {length: continued(model, prompts, way, new) for length, way in ways.items()}
    found = {}
    for place, temperature in enumerate(TEMPERATURES):
        own = {
            length: list(zip(each[place], plain[place], reached(model, prompts, each[place]),
                             strict=True))
            for length, each in rows.items()
        }  # fmt: skip
        apart = {
            length: [each for each in row if loops.period(each[0].bytes) is None]
            for length, row in own.items()
        }
        unlooped = [each for each in plain[place] if loops.period(each.bytes) is None]
        found[f"T={temperature:g}"] = {
            "all": {"plain": evidence.figures(plain[place]), **each_figures(own)},
            "without loops": {"plain": evidence.figures(unlooped), **each_figures(apart)}
            if unlooped
            else {},
        }
    return found


def continued(model, prompts, way, new):
    """Continuations of all prompts at each temperature, from one program for both."""
    results = generate(
        model, [*prompts] * len(TEMPERATURES), method=way.method, max_new_bytes=new,
        temperature=[each for each in TEMPERATURES for _ in prompts], allow_eos=False,
        **way.settings,
    ).results  # fmt: skip
    return [results[begin : begin + len(prompts)] for begin in range(0, len(results), len(prompts))]


def reached(model, prompts, results):
    """What was kept before and behind patch boundaries, prompt by prompt."""
    texts = [prompt + each.bytes for prompt, each in zip(prompts, results, strict=True)]
    return [
        boundary.counted(each.origins.kind, closes[len(prompt) : -1])
        for prompt, each, closes in zip(prompts, results, closed(model, texts), strict=True)
    ]


def closed(model, texts):
    """Whether a patch closes with each id of each text, BOS first."""
    ids = [vocab.encode(text) for text in texts]
    padded = np.full((len(ids), max(map(len, ids))), vocab.BOE, np.int32)
    for row, each in zip(padded, ids, strict=True):
        row[: len(each)] = each
    found = jax.device_get(_closes(model.module, model.params, padded))
    return [row[: len(each)] for row, each in zip(found, ids, strict=True)]


@functools.partial(jax.jit, static_argnums=0)
def _closes(module, params, ids):
    return module.apply({"params": params}, ids, method="predict")[1]


def each_figures(rows):
    return {length: beside(*zip(*row, strict=True)) for length, row in rows.items() if row}


def beside(own, plain, reached):
    """Figures of drafted prompts, and their weights beside those of plain decoding."""

    def of_plain(name):
        return intervals.of_ratio(
            *([getattr(each.stats, name) for each in results] for results in (own, plain))
        )

    before, kept_before, behind, kept_behind = zip(*reached, strict=True)
    return evidence.figures(own) | {
        "kept_before": intervals.of_ratio(kept_before, before),
        "kept_behind": intervals.of_ratio(kept_behind, behind),
        "share_behind": sum(behind) / sum(before + behind),
        "weights": of_plain("bandwidth_gb"),
        "weights_with_patcher": of_plain("bandwidth_gb_with_patcher"),
    }


def markdown(report):
    rows = report["rows"]
    left_out = [stage for stage in STAGES if stage not in {r["setting"]["stage"] for r in rows}]
    lines = [
        "# How far a decoder sees",
        "",
        *evidence.warning(report),
        "BLTs that differ in their decoder alone: the bytes that its attention spans and its "
        "layers, by name. All have read the same bytes of text (`train.py`). "
        f"{evidence.conditions(report)} A shape is chosen here, "
        "so the files for the last tables are left alone.",
        "",
        f"Not trained yet, and left out: {', '.join(left_out)}." if left_out else "All are here.",
        "",
        "    python -m experiments.training.decoder_window.run --data DIR --runs RUNS",
        "",
        *evidence.LEGEND,
        published_fast_blt.LEGEND,
        "",
        "## What latents are worth",
        "",
        f"Over {report['stretches']} stretches of {report['stretch'] - 1} bytes; intervals from "
        f"resampling {BATCH} of them at a time. Weights: thousands that a pass reads. The gate: a "
        f"mean latent costs at least {LEAST_COST} bits, and the decoder sees at least "
        f"{LEAST_WINDOW} bytes.",
        "",
        *study.table(
            ("model", *(f"{part} weights" for part in ("global", "decoder", "encoder", "patcher")),
             "bits per byte", *(f"{cost}, bits more" for cost in COSTS.values()), "gate"),
            [latents(row) for row in rows],
        ),
        "",
        "A mean latent by genre, bits more:",
        "",
        *study.table(
            ("model", *(rows[0]["mean_by_genre"] if rows else ())),
            [
                (named(row), *(intervals.shown(x, "+.3f") for x in row["mean_by_genre"].values()))
                for row in rows
            ],
        ),
    ]  # fmt: skip
    for temperature in TEMPERATURES:
        lines += [
            "",
            f"## `blt-s` at temperature {temperature:g}",
            "",
            *study.table(
                HEADER,
                [
                    cells(row, length, row[f"T={temperature:g}"], report["prompts"])
                    for row in rows
                    for length in map(str, report["drafts"])
                ],
            ),
        ]
    return "\n".join([
        *lines, "",
        "Loops are left out of all columns but the first acceptance. By place: kept, of those that "
        "were drafted at this place of a draft. Before and behind the boundary: kept, of the "
        "drafted bytes before which none was refused. A byte is behind it if a patch has closed "
        "since the latent that it is drafted from; before it the decoder drafts what plain "
        "decoding would write, so that nothing is refused. Passes are of a byte; behind a slash "
        "those of plain decoding, where they are not 1. Weights: read for a byte, beside plain "
        "decoding of the same prompts, by the paper's formula without and with the entropy model.",
        "",
    ])  # fmt: skip


HEADER = (
    "model", "drafts", "loops", "acceptance, %", "without loops", "published", "by place, %",
    "before, %", "behind, %", "of them behind, %", "bytes per round", "decoder", "encoder",
    "global", "weights", "with patcher",
)  # fmt: skip


def named(row):
    return f"`{row['setting']['stage']}`"


def latents(row):
    bits, weights = row["bits"], row["weights"]
    cost = bits["mean"]["interval"][0]
    passed = cost >= LEAST_COST and row["window"] >= LEAST_WINDOW
    return (
        named(row),
        *(f"{weights[part] / 1e3:.0f}" for part in ("global_", "decoder", "encoder", "patcher")),
        intervals.shown(bits["own"]),
        *(intervals.shown(bits[name], "+.3f") for name in COSTS),
        "yes" if passed else "no",
    )


def cells(row, length, found, prompts):
    """A line of the table: one model, one draft length and one temperature."""
    whole = found["all"][length]
    name = (
        named(row), length, f"{whole['loops']}/{prompts}",
        intervals.shown(whole["acceptance"], ".1f", times=100),
    )  # fmt: skip
    if length not in found["without loops"]:
        return (*name, *[None] * (len(HEADER) - len(name)))
    own, plain = (found["without loops"][which] for which in (length, "plain"))
    kept, before, behind = (
        intervals.shown(own[part], ".1f", times=100)
        for part in ("acceptance", "kept_before", "kept_behind")
    )
    return (
        *name,
        kept,
        published_fast_blt.shown("blt-s", {"draft_length": int(length)}),
        ", ".join(f"{100 * share:.0f}" for share in own["acceptance_by_position"]),
        before,
        behind,
        f"{100 * own['share_behind']:.0f}",
        intervals.shown(own["bytes_per_round"]),
        f"{own['decoder_passes_per_byte']['value']:.2f}",
        f"{own['encoder_passes_per_byte']['value']:.2f}",
        "{:.3f} / {:.3f}".format(
            *(each["global_passes_per_byte"]["value"] for each in (own, plain))
        ),
        intervals.shown(own["weights"]),
        intervals.shown(own["weights_with_patcher"]),
    )


if __name__ == "__main__":
    main()
