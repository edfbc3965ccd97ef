"""How large a draft model should be, and what it should have read.

    python -m experiments.speed.draft_models.run --data DIR

Draft models of five sizes learn from the same bytes, and two of one size from prose or code alone.
Each drafts for the bundled `tiny-lm` on 64 held-out prompts of five genres, at temperature 0 and 1:
bytes per round, by kind of text too, what a drafted byte reads beside a byte of the target, and the
measured speed. One seed each, and fewer bytes than the bundled draft model has seen: the order is
the result, not the values.
"""

import pathlib
import subprocess

import jax

from bytelax import load
from bytelax.measure.timing import Contestant
from experiments.harness import evidence, intervals, recipes, speed_table, study
from experiments.harness.bundled_data import sources
from experiments.harness.recipes import Stack, data, muon

MINUTES = 35
WINDOW, BATCH = 256, 32
DRAFT = 4  # bytes
SIZES = {
    "32 x 1": Stack(32, 1, 96, window=128),
    "48 x 1": Stack(48, 1, 128, window=128),
    "64 x 2": Stack(64, 2, 192, window=128),
    "96 x 3": Stack(96, 3, 256, window=128),
    "96 x 6": Stack(96, 6, 256, window=128),
}
OF_KIN = "64 x 2"
KINDS = {"prose": ("openstax_ccby", "eltec_eng"), "code": ("code_",), "sentences": ("tatoeba_",)}
MIXED = "everything"
TEMPERATURES = (0.0, 1.0)


def main():
    options = study.parser(__doc__, __file__, model="tiny-lm")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/draft_models"))
    options.add_argument("--steps", type=int, default=500)
    evidence.add_options(options, new=96, repeats=2)
    options = evidence.parsed(options)
    if options.smoke:
        options.out, options.steps = options.results / "runs", 2
    model = load(options.model, dtype="float32")
    texts = evidence.prompts(options)
    chosen = [{"size": size, "read": MIXED} for size in SIZES]
    chosen += [{"size": OF_KIN, "read": kind} for kind in ("prose", "code")]
    study.run(
        options.results / "results.json",
        {
            "model": options.model, "parameters": parameters(model),
            "trained_bytes": options.steps * WINDOW * BATCH,
            **evidence.measured_on(options, texts),
        },
        chosen[:1] if options.smoke else chosen,
        lambda setting: measure(setting, model, texts, options),
        markdown=markdown,
    )  # fmt: skip


def measure(setting, model, texts, options):
    """Trains a draft model, and says what it is worth."""
    small = trained(setting, options)
    own = Contestant("draft-model", {"draft_model": small, "draft_length": DRAFT})
    kinds = [kind_of(genre) for genre, _ in texts]
    row = {"parameters": parameters(small)}
    for temperature in TEMPERATURES:
        found = evidence.decoded(
            model, [text for _, text in texts], own, new=options.new, temperature=temperature
        )
        timed = evidence.speed(
            model, evidence.few(texts), own, temperature=temperature, new=options.new,
            repeats=options.repeats,
        )  # fmt: skip
        figures = evidence.figures(found)
        row[f"T={temperature:g}"] = {
            **{
                name: figures[name]
                for name in (
                    "bytes_per_round",
                    "bytes_per_round_without_loops",
                    "loops",
                    "acceptance",
                )
            },
            "by_kind": evidence.by_genre(found, kinds),
            **timed,
        }
    return row


def trained(setting, options):
    """The draft model of a setting, trained unless it is there."""
    name = "".join(c for c in f"{setting['size']}-{setting['read']}" if c.isalnum() or c == "-")
    out = options.out / name
    if not (out / "model").exists():
        read = KINDS.get(setting["read"], ("",))
        chosen = [
            each for each in sources(options.data)
            if pathlib.Path(each.path).parent.name.startswith(read)
        ]  # fmt: skip
        arguments = [
            "byte-lm", *SIZES[setting["size"]].flags("trunk"), *data(WINDOW, BATCH),
            *muon(options.steps, warmup=min(60, options.steps)),
        ]  # fmt: skip
        subprocess.run(recipes.command(arguments, chosen, out), check=True)
    return load(out, dtype="float32")


def kind_of(genre):
    """The kind of text that a genre of the prompts is: prose, code or sentences."""
    return genre.split(",")[0]


def parameters(model):
    return sum(x.size for x in jax.tree.leaves(model.params))


def headline(report):
    for row in report["rows"]:
        if row["setting"]["read"] == MIXED:
            yield speed_table.row(
                report, row["T=1"], model=report["model"],
                method=f"draft-model of {row['parameters']:,} parameters",
                baseline="plain, W = 1", batch=1, context=report["prompt_bytes"], temperature=1.0,
            )  # fmt: skip


def markdown(report):
    sizes, kin = [], []
    for row in report["rows"]:
        greedy, sampled = row["T=0"], row["T=1"]
        if row["setting"]["read"] == MIXED:
            sizes.append(
                (
                    row["setting"]["size"], f"{row['parameters']:,}",
                    f"{row['parameters'] / report['parameters']:.2f}",
                    intervals.shown(greedy["bytes_per_round_without_loops"]), greedy["loops"],
                    spread(greedy), intervals.shown(sampled["bytes_per_round"]), spread(sampled),
                )
            )  # fmt: skip
        if row["setting"]["size"] == OF_KIN:
            kin.append(
                (
                    row["setting"]["read"],
                    *(
                        intervals.shown(sampled["by_kind"][kind])
                        for kind in KINDS
                        if kind in sampled["by_kind"]
                    ),
                )
            )
    header = (
        "width x layers", "parameters", "of the target", "bytes per round, T = 0, without loops",
        "loops", "speed, T = 0", "bytes per round, T = 1", "speed, T = 1",
    )  # fmt: skip
    return "\n".join(
        [
            "# Draft models by size and by what they have read",
            "",
            *evidence.warning(report),
            f"Draft models for `{report['model']}` ({report['parameters']:,} parameters), each "
            f"trained on {report['trained_bytes']:,} bytes, one seed; drafts of {DRAFT} bytes. "
            f"{evidence.conditions(report)}",
            "",
            *evidence.LEGEND[:2],
            evidence.timed(report),
            "",
            *study.table(header, sizes),
            "",
            f"## What a draft model of {OF_KIN} has read",
            "",
            "Bytes per round at temperature 1, by kind of the prompt:",
            "",
            *study.table(("read", *(f"on {kind}" for kind in KINDS)), kin),
            "",
        ]
    )


def spread(figures):
    low, high = figures["decode_speed_range"]
    return f"{figures['decode_speed']:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
