"""What drafts across patch boundaries keep, by the latents that the drafting decoder reads.

    python -m experiments.speed.latents.run --data DIR

64 held-out prompts of five genres, at temperature 0 and 1. Beside the latent of the latest closed
patch, which is never renewed (BLT-S), and the predicted ones: one mean latent, those predicted in
the next row of the batch, and the model's own for the first patches that close. The predicted ones
also with multi-byte heads that draft for the decoder. `batches.json` has what they gain in
batches, beside the best plain decoding there; with `--only batches` nothing else is measured.
"""

import dataclasses
import pathlib
import tempfile

import jax.numpy as jnp
import numpy as np

from bytelax import decode, load, vocab
from bytelax.decode import Method, MultiByte, Nested, PastBoundary
from bytelax.decode.record import Origin
from bytelax.measure.timing import Contestant
from bytelax.models import layers
from experiments.harness import evidence, intervals, loops, recipes, study, thunks
from experiments.speed.latents import batches
from experiments.speed.latents.oracle import TrueLatents

MINUTES = 32
RESULTS = (study.MAIN, "batches")
TEMPERATURES, CONTROLLED = (0.0, 1.0), 16
LENGTHS = (CONTROLLED, 8, 24)
PLAIN, STALE, PREDICTED, NESTED = "none", "stale", "predicted", "predicted, nested"
CONTROLS = MEAN, OTHER, FIRST, FIRST_TWO = (
    "mean", "predicted in another text", "true, one patch", "true, two patches",
)  # fmt: skip
AHEAD = batches.AHEAD
TIMED = (STALE, PREDICTED, NESTED)
CROSSED = 4  # patches of a draft that are told apart


@dataclasses.dataclass(frozen=True)
class MeanLatent(PastBoundary):
    """Takes one vector, the drafter's parameters, for every patch."""

    def latent_of(self, inputs, latent, hidden, recent, inside):
        return jnp.broadcast_to(inputs.params, latent.shape)


@dataclasses.dataclass(frozen=True)
class OfAnotherText(PastBoundary):
    """Takes what is predicted for the next row."""

    def latent_of(self, inputs, latent, hidden, recent, inside):
        return jnp.roll(super().latent_of(inputs, latent, hidden, recent, inside), 1, axis=0)


DRAFTERS = {
    STALE: PastBoundary,
    PREDICTED: lambda length: PastBoundary(length, "predicted"),
    NESTED: lambda length: Nested(length, MultiByte(AHEAD), "predicted"),
    MEAN: lambda length: MeanLatent(length, "predicted"),
    OTHER: lambda length: OfAnotherText(length, "predicted"),
    FIRST: lambda length: TrueLatents(length, 1),
    FIRST_TWO: lambda length: TrueLatents(length, 2),
}


def main():
    options = study.parser(__doc__, __file__, model="tiny")
    options.add_argument("--heads", type=pathlib.Path, help="a run of another head of latents")
    options.add_argument("--only", choices=RESULTS, help="one of the files of results")
    evidence.add_options(options, new=96)
    options = evidence.parsed(options)
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        if options.only != study.MAIN:
            thunks.dump_to(scratch)
        if options.only != "batches":
            over_boundaries(options)
        if options.only != study.MAIN:
            batches.run(options, TEMPERATURES, scratch)


def over_boundaries(options):
    """What drafts keep and read, and how fast they are at one row."""
    trained = options.heads and recipes.trained_on(options.heads)
    settings = [
        {"latents": name, "draft_length": length, "temperature": temperature}
        for length in LENGTHS
        for temperature in TEMPERATURES
        for name in (PLAIN, *DRAFTERS)
        if name in (STALE, PREDICTED, NESTED) or length == CONTROLLED
    ]
    if options.smoke:
        settings = [each for each in settings if each["latents"] in (PLAIN, PREDICTED)][:2]
    texts = evidence.prompts(options)
    study.run(
        options.results / "results.json",
        evidence.measured_on(options, texts) | {"model": options.model, "trained": trained},
        settings,
        lambda setting: measure(setting, texts, options),
        markdown=markdown,
    )


def measure(setting, prompts, options):
    """Figures over prompts, acceptance by what a byte would have to know, and speed."""
    texts = [text for _, text in prompts]
    heads = options.heads and options.heads / "heads"
    model = load(options.model, dtype="float32", heads=heads)
    name, length = setting["latents"], setting["draft_length"]
    drafter = decode.Empty() if name == PLAIN else DRAFTERS[name](length)
    given = {"draft_params": mean_latent(model, texts)} if name == MEAN else {}
    contestant = Contestant(Method(model.target(), drafter), given | {"origins": True})
    results = evidence.decoded(
        model, texts, contestant, new=options.new, temperature=setting["temperature"]
    )
    apart = [result.stats for result in results if loops.period(result.bytes) is None]
    timed = {}
    if name in TIMED:
        how = {"temperature": setting["temperature"], "new": options.new}
        alone = Contestant(contestant.method, {})
        timed = evidence.speed(model, evidence.few(prompts), alone, repeats=options.repeats, **how)
    found = (
        evidence.figures(results)
        | timed
        | {
            "patches_per_global_pass": evidence.ratio(apart, "patches", "global_passes"),
            "bytes_per_global_pass": evidence.ratio(apart, "bytes", "global_passes"),
        }
    )
    pairs = list(zip(texts, results, strict=True))
    crossed = [acceptance(model, *pair) for pair in pairs]
    heads = model.params["heads"] if model.config.heads else {}
    head = heads.get("latents")
    ahead = layers.weights({name: x for name, x in heads.items() if name.startswith("ahead")})
    windows = found["decoder_passes_per_byte"]["value"] - 1 / found["bytes_per_round"]["value"]
    return found | {
        "by_patches_crossed": shares(sum(each for each, _ in crossed)),
        "by_distance": shares(sum(each for _, each in crossed)),
        "ahead_gb_per_byte": 2e-9 * ahead * windows if name == NESTED else 0.0,
        "head_of_global": None if head is None
        else layers.weights(head) / layers.weights(model.params["global_transformer"]),
    }  # fmt: skip


def mean_latent(model, texts):
    """The mean of the latents of the prompts, of as many bytes as all of them have."""
    least = min(map(len, texts))
    ids = np.array([vocab.encode(text[:least]) for text in texts])
    out = model.module.apply({"params": model.params}, ids, method="forward")
    known = jnp.arange(out.latents.shape[1]) < out.closes.sum(1)[:, None]
    return jnp.where(known[..., None], out.latents, 0).sum((0, 1)) / known.sum()


def acceptance(model, prompt, result):
    """Bytes offered and kept, i64[.., 2], of those whose predecessors were kept.

    By the number of patches that close within the draft before the byte, and, of bytes that need
    the latent of one of these, by the distance from the last byte of the latest of them.
    """
    ids = np.array(vocab.encode(prompt + result.bytes))
    last = np.cumsum(model.patch_lengths(ids))[:-1] - 1  # the last byte of each closed patch
    kinds, first = result.origins.kind, len(ids) - len(result.bytes)
    crossed, distance = np.zeros((CROSSED, 2), int), np.zeros((8, 2), int)
    pending = first - 1
    for place, kind in enumerate(kinds, first):
        if kind in (Origin.DRAFTED, Origin.CORRECTED):
            closed = last[(last >= pending) & (last < place)]
            one = np.array([1, kind == Origin.DRAFTED])
            crossed[min(len(closed), CROSSED - 1)] += one
            if len(closed):
                distance[min(place - 1 - closed[-1], 7)] += one
        if kind != Origin.DRAFTED:
            pending = place
    return crossed, distance


def shares(counts):
    return [int(kept) / int(of) if of else None for of, kept in counts]


def plain_of(report, row):
    """Plain decoding at the temperature of a row."""
    same = {"latents": PLAIN, "temperature": row["setting"]["temperature"]}
    return next(each for each in report["rows"] if same.items() <= each["setting"].items())


def markdown(report):
    header = (
        "latents", "draft", "bytes per round", "without loops", "loops", "bytes per global pass",
        "patches per global pass", "decoder passes per byte", "weights read", "speed", "range",
        "kept before / behind 1 / 2 / 3 or more boundaries, %", "kept at distance 0, 1, ..., %",
    )  # fmt: skip
    lines = [
        "# Drafts that cross patch boundaries",
        "",
        *evidence.warning(report),
        f"`{report['model']}`. {evidence.conditions(report)}",
        "",
        said_of_training(report),
        "",
        *evidence.LEGEND[:2],
        "- Latents: what the drafting decoder reads behind a patch that closes in the draft. A "
        "drafter that knew all true latents would draft what the model writes, and keep every "
        "byte. For the true ones the whole model runs at each byte.",
        "- Per global pass: without loops.",
        "- Weights read: those of a byte beside plain decoding, by the formula of Fast BLT with "
        "the entropy model and the head of latents. The head that tells where patches end reads "
        "about 1 % of a decoder pass at each byte, which is left out.",
        f"- Nested: {AHEAD} multi-byte heads draft for the decoder, which verifies their bytes in "
        "one pass, up to the next byte that closes a patch. Their weights are counted.",
        evidence.timed(report),
        "- Kept: share of the bytes that are kept, of those whose predecessors were. Boundaries "
        "are those that the model itself puts between the byte that starts the round and the one "
        "that is judged; distance 0 is the byte behind the last one of a patch.",
    ]
    for temperature in dict.fromkeys(row["setting"]["temperature"] for row in report["rows"]):
        own = [row for row in report["rows"] if row["setting"]["temperature"] == temperature]
        rows = [cells(report, row) for row in own]
        lines += ["", f"## Temperature {temperature:g}", "", *study.table(header, rows)]
    return "\n".join([*lines, ""])


def said_of_training(report):
    trained = report["trained"]
    if not trained:
        return "The heads are those of the model."
    sizes = {row["head_of_global"] for row in report["rows"]} - {None}
    return (
        f"The head of latents has {100 * max(sizes):.1f} % of the weights of the global "
        f"transformer, and has seen {trained['bytes'] / 1e6:.1f} MB ({trained['steps']} steps, "
        f"loss {trained['loss_of']})."
    )


def cells(report, row):
    def percent(values):
        return ", ".join("" if x is None else f"{100 * x:.0f}" for x in values)

    drafts = row["setting"]["latents"] != PLAIN
    apart = row["bytes_per_round_without_loops"]
    beside = plain_of(report, row)["gb_per_byte"]["value"]
    return (
        row["setting"]["latents"],
        row["setting"]["draft_length"] if drafts else None,
        intervals.shown(row["bytes_per_round"]),
        apart and intervals.shown(apart),
        row["loops"],
        row["bytes_per_global_pass"] and intervals.shown(row["bytes_per_global_pass"]),
        row["patches_per_global_pass"] and intervals.shown(row["patches_per_global_pass"]),
        f"{row['decoder_passes_per_byte']['value']:.2f}",
        f"{(row['gb_per_byte']['value'] + row['ahead_gb_per_byte']) / beside:.2f}",
        f"{row['decode_speed']:.2f}" if "decode_speed" in row else None,
        "{:.2f} to {:.2f}".format(*row["decode_speed_range"]) if "decode_speed" in row else None,
        percent(row["by_patches_crossed"]) if drafts else None,
        percent(row["by_distance"]) if drafts else None,
    )


if __name__ == "__main__":
    main()
