"""What latents are worth, and what `blt-s` keeps and reads, by how far the decoder sees.

BLTs that differ in their decoder alone, trained on equal bytes: the bytes that its attention spans
and its layers are in the name; two have a second seed. Costs are in bits per byte: of one mean
latent in place of all, and of latents that are one patch old. All figures of `blt-s` leave out
loops. "Before" and "after": kept, of the drafted bytes before which none was refused, by whether a
patch has closed since the latent that they are drafted from; before it the decoder drafts what
plain decoding would write. Models that are not trained yet are left out.

    python -m experiments.recipes.decoder_window window8-layers3 --data DIR --runs RUNS  and others
    python -m experiments.studies.decoder_window --data DIR --runs RUNS
"""

import functools
import pathlib

import jax
import numpy as np

from bytelax import load, vocab
from bytelax.measure.timing import Contestant
from experiments import evidence, study
from experiments.harness import boundary, bundled_data, intervals, latent_costs, loops, trained
from experiments.recipes.decoder_window import STAGES
from experiments.study import Column

DRAFTS = (4, 8, 16)
STRETCH, STRETCHES, BATCH = 512, 32, 8  # ids of a stretch, as in training; of a text; at a time
COLUMNS = [
    Column("model", "stage"),
    Column("bits per byte", "bits", ".3f"),
    Column("mean latent", "mean_latent", "+.3f"),
    Column("one patch old", "stale_latent", "+.3f"),
    Column("T", "temperature", "g"),
    Column("bytes drafted", "draft_length"),
    Column("acceptance", "acceptance", ".1%"),
    Column("before", "kept_before", ".1%"),
    Column("after", "kept_after", ".1%"),
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("weights read, beside plain", "weights_read", ".2f"),
]


def main():
    options = evidence.parser(__doc__, new=96, timed=False)
    options.add_argument("--runs", type=study.directory, required=True, help="of the recipes")
    options.set_defaults(split=bundled_data.VALID)  # the shape of `tiny` is chosen by it
    options = evidence.parsed(options)
    runs = pathlib.Path(options.runs)
    texts = bundled_data.held_out(options.data, None, options.split)
    prompts = [text for _, text in evidence.prompts(options)]
    stretches, drafts = (BATCH, DRAFTS[:1]) if options.smoke else (STRETCHES, DRAFTS)

    def measure(setting):
        model = load(trained.model_of(runs / setting["stage"]), dtype="float32")
        bits = latent_costs.figures(latent_costs.of_batches(
            model, list(texts.values()), length=STRETCH, each=stretches, batch=BATCH
        ))  # fmt: skip
        costs = {
            "bits": bits["own"], "mean_latent": bits["mean"], "stale_latent": bits["stale_1"]
        }  # fmt: skip
        return [
            {"temperature": temperature, "draft_length": length}
            | costs
            | drafted(model, prompts, length, temperature, options.new)
            for temperature in evidence.TEMPERATURES
            for length in drafts
        ]

    settings = [
        {"stage": stage, "trained": trained.digest(model)}
        for stage in STAGES
        if (model := trained.model_of(runs / stage))
    ]
    study.run(
        "decoder_window", options, settings, measure,
        conditions=evidence.conditions(options, stretches=stretches * len(texts)), timed=False,
    )  # fmt: skip


def drafted(model, prompts: list[bytes], length: int, temperature: float, new: int) -> dict:
    """Figures of `blt-s`, without the continuations that loop."""
    own = Contestant("blt-s", {"draft_length": length, "origins": True})
    found = evidence.decoded(model, prompts, own, new=new, temperature=temperature)
    plain = evidence.plainly(model, tuple(prompts), new, temperature)
    apart = [at for at, each in enumerate(found) if loops.period(each.bytes) is None]
    if not apart:
        return {}
    kept = [
        boundary.counted(found[at].origins.kind, closes[len(prompts[at]) : -1])
        for at, closes in zip(
            apart, closed(model, [prompts[at] + found[at].bytes for at in apart]), strict=True
        )
    ]
    before, kept_before, after, kept_after = zip(*kept, strict=True)
    figures = evidence.figures([found[at] for at in apart])
    return {
        "acceptance": figures["acceptance"],
        "kept_before": intervals.of_ratio(kept_before, before),
        "kept_after": intervals.of_ratio(kept_after, after),
        "bytes_per_round": figures["bytes_per_round"],
        "weights_read": evidence.beside(
            [found[at] for at in apart], [plain[at] for at in apart], "bandwidth_gb_with_patcher"
        ),
    }


def closed(model, texts: list[bytes]) -> list[np.ndarray]:
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


if __name__ == "__main__":
    main()
