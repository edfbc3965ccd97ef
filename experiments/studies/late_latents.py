"""What `blt-s` keeps past a patch, and what a late latent costs the model.

Costs are in bits per byte: of one mean latent in place of all, and of latents that are one and two
patches old. All figures leave out loops, but for their number and the acceptance before the
published one. "Before" and "after": kept, of the drafted bytes before which none was refused, by
whether a patch has closed since the draft began; before it `blt-s` on stale latents drafts what
plain decoding would write. "By entropy": the same bytes, by the entropy of the model's next byte.
Models named "windowN-layersM" differ in their decoder alone, by the bytes that its attention spans
and its layers, and have seen equal bytes. With `--runs`, models of a directory are measured too.

    python -m experiments.studies.late_latents --data DIR [--runs RUNS]
"""

import functools
import itertools
import math
import pathlib
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import Result, load, vocab
from bytelax.decode import Origin, Sampling, process_logits
from experiments import evidence, study
from experiments.harness import boundary, bundled_data, intervals, latent_costs, loops, trained
from experiments.study import Column

BUNDLED = ("tiny", "tiny-d")
DRAFTS = [("blt-s", {"draft_length": length}) for length in (4, 8, 16)]
MORE = {
    "tiny": [("blt-s", options | {"latent": "predicted"}) for _, options in DRAFTS],
    "tiny-d": [("blt-dv", {"block_size": size, "unmask": "one-step"}) for size in (4, 8, 16)],
}
BANDS = (0.0, 0.25, 1.0, 3.0, math.inf)  # of the entropy of the next byte, in bits
STRETCH, STRETCHES, BATCH = 512, 32, 8  # ids of a stretch, as in training; of a text; at a time
COLUMNS = [
    *evidence.SETTING,
    Column("bits per byte", "costs.own", ".3f"),
    Column("mean latent", "costs.mean", "+.3f"),
    Column("one patch old", "costs.stale_1", "+.3f"),
    Column("two patches old", "costs.stale_2", "+.3f"),
    Column("loops", "loops"),
    Column("acceptance", "acceptance", ".1%"),
    Column("published acceptance", "published_acceptance"),
    Column("without loops", "acceptance_without_loops", ".1%"),
    Column("before", "kept_before", ".1%"),
    Column("after", "kept_after", ".1%"),
    Column("by entropy", "kept_by_bits", ".0%"),
    Column("bytes per round", "bytes_per_round_without_loops", ".2f"),
    Column("weights read, over plain", "weights_read", ".2f"),
]


def main():
    options = evidence.parser(__doc__, new=96, timed=False)
    options.add_argument("--runs", type=study.directory, help="further models")
    options = evidence.parsed(options)
    texts = bundled_data.held_out(options.data, None, options.split)
    prompts = tuple(text for _, text in evidence.prompts(options))
    stretches = BATCH if options.smoke else STRETCHES
    models: dict[str, pathlib.Path | None] = dict.fromkeys(BUNDLED)
    if options.runs:
        models |= models_in(pathlib.Path(options.runs))

    @functools.cache
    def model(name):
        return load(models[name] or name, dtype="float32")

    @functools.cache
    def costs(name):
        return latent_costs.figures(latent_costs.of_batches(
            model(name), list(texts.values()), length=STRETCH, each=stretches, batch=BATCH
        ))  # fmt: skip

    asked = list(settings(models))
    if options.smoke:
        asked = [each for each in asked if each["options"] == DRAFTS[0][1]]
    study.run(
        "late_latents", options, asked,
        lambda setting: {"costs": costs(setting["model"])}
        | drafted(model(setting["model"]), prompts, setting, options.new),
        conditions=evidence.conditions(options, stretches=stretches * len(texts)), timed=False,
    )  # fmt: skip


def models_in(directory: pathlib.Path) -> dict[str, pathlib.Path]:
    """The models of a directory, by name."""
    models = {path.name: trained.model_of(path) for path in sorted(directory.iterdir())}
    return {name: model for name, model in models.items() if model}


def settings(models: dict[str, pathlib.Path | None]) -> Iterator[dict]:
    """The models, each with its methods at both temperatures."""
    for name, path in models.items():
        own = {"model": name} | ({"trained": trained.digest(path)} if path else {})
        for temperature in evidence.TEMPERATURES:
            for method, options in DRAFTS + MORE.get(name, []):
                yield own | {"method": method, "options": options, "temperature": temperature}


def drafted(model, prompts: tuple[bytes, ...], setting: dict, new: int) -> dict:
    """Figures of a method that drafts in every round."""
    method, options, temperature = (setting[key] for key in ("method", "options", "temperature"))
    own = evidence.contestant(method, options | {"origins": True})
    found = evidence.decoded(model, prompts, own, new=new, temperature=temperature)
    plain = evidence.plainly(model, prompts, new, temperature)
    apart = [at for at, each in enumerate(found) if loops.period(each.bytes) is None]
    return (
        evidence.counts(setting, found, plain)
        | kept(model, [prompts[at] for at in apart], [found[at] for at in apart])
        | {
            "weights_read": evidence.beside(
                [found[at] for at in apart], [plain[at] for at in apart],
                "bandwidth_gb_with_patcher",
            )
        }
    )  # fmt: skip


def kept(model, prompts: Sequence[bytes], results: Sequence[Result]) -> dict:
    """Of the drafted bytes before which none was refused those that were kept, in two ways."""
    if not results:
        return {}
    sides, bands = [], []
    written = [prompt + result.bytes for prompt, result in zip(prompts, results, strict=True)]
    for prompt, result, (closes, bits) in zip(
        prompts, results, closed(model, written), strict=True
    ):
        kinds = np.asarray(result.origins.kind)
        # An id's figures are of the byte after it, and BOS comes first.
        sides.append(boundary.counted(kinds, closes[len(prompt) : -1]))
        bands.append(by_band(kinds, bits[len(prompt) : -1]))
    before, kept_before, after, kept_after = zip(*sides, strict=True)
    reached, kept_in = np.moveaxis(np.array(bands), 0, -1)  # each [bands, prompts]
    names = [
        f"{low:g} to {high:g}" if high < math.inf else f"from {low:g}"
        for low, high in itertools.pairwise(BANDS)
    ]
    shares = map(intervals.of_ratio, kept_in, reached)
    return {
        "kept_before": intervals.of_ratio(kept_before, before),
        "kept_after": intervals.of_ratio(kept_after, after),
        "kept_by_bits": {name: share for name, share in zip(names, shares, strict=True) if share},
    }


def by_band(kinds: np.ndarray, bits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Drafted bytes before which none was refused, and those that were kept, by `BANDS`.

    Args:
      kinds: i32[N], `Origin` of each byte of a continuation.
      bits: f32[N], entropy of the law that each was judged by.
    """
    chosen = np.isin(kinds, (Origin.DRAFTED, Origin.CORRECTED)), kinds == Origin.DRAFTED
    reached, kept = (np.histogram(bits[each], BANDS)[0] for each in chosen)
    return reached, kept


def closed(model, texts: Sequence[bytes]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each id of each text, BOS first, whether a patch closes with it, and the bits after it."""
    ids = [vocab.encode(text) for text in texts]
    padded = np.full((len(ids), max(map(len, ids))), vocab.BOE, np.int32)
    for row, each in zip(padded, ids, strict=True):
        row[: len(each)] = each
    closes, bits = jax.device_get(_closed(model.module, model.params, padded))
    return [(closes[at, : len(each)], bits[at, : len(each)]) for at, each in enumerate(ids)]


@functools.partial(jax.jit, static_argnums=0)
def _closed(module, params, ids):
    logits, closes = module.apply({"params": params}, ids, method="predict")
    log_probs = process_logits(logits, Sampling.of(len(ids), temperature=1.0))
    probs = jnp.exp(log_probs)
    return closes, jnp.where(probs > 0, probs * log_probs, 0).sum(-1) / -math.log(2)


if __name__ == "__main__":
    main()
