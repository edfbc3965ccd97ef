"""Which loss a draft layer of a frozen BLT should learn by: a trial each, on the same bytes.

    python -m experiments.training.draft_losses.run --data DIR

Trains the draft layer of `tiny` anew by every loss, on the corpora and on the model's own text, and
measures what it is worth in decoding: the overlap with the model on held-out text, by place in the
draft, and bytes per round on 64 held-out prompts. One seed each, and far fewer bytes than the
bundled layer saw: the order of the losses is the result, and not their values.
"""

import json
import pathlib
import subprocess

import bytelax
from bytelax import load
from bytelax.measure.timing import Contestant
from bytelax.training.configs import Source
from experiments.harness import evidence, intervals, recipes, study, teacher_forced
from experiments.harness.bundled_data import sources
from experiments.harness.recipes import data, muon

MINUTES = 60
WINDOW, BATCH, PATCHES = 256, 16, 96
DRAFT = 8  # bytes
DEPTHS = ("1", "2", "3")  # of the decoder of `tiny`
OWN, ROWS = 512, 64  # bytes of a text of the model's own, and texts that are written together
# Loss, number of unrolled steps, bytes after which the weight of a place has fallen to 1 / e, and
# whether the text is the model's own.
TRIALS = {
    "KL": ("kl", 6, 4, False),
    "total variation": ("total-variation", 6, 4, False),
    "cross-entropy on the text": ("cross-entropy", 6, 4, False),
    "LK": ("lk", 6, 4, False),
    "LK, all places alike": ("lk", 6, None, False),
    "LK, one step": ("lk", 1, 4, False),
    "LK, the model's own text": ("lk", 6, 4, True),
}


def main():
    options = study.parser(__doc__, __file__, model="tiny")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/draft_losses"))
    options.add_argument("--steps", type=int, default=300)
    options.add_argument("--own-bytes", type=int, default=1_000_000, help="of the model's own text")
    evidence.add_options(options, new=96)
    options = evidence.parsed(options)
    windows = 16
    if options.smoke:
        options.out, options.steps, options.own_bytes = options.results / "runs", 4, 3 * OWN
        windows = 1
    texts = evidence.prompts(options)
    batches = teacher_forced.held_out(sources(options.data), windows, window=WINDOW, batch=BATCH)

    chosen = [{"trial": name} for name in TRIALS]
    study.run(
        options.results / "results.json",
        {
            "model": options.model, "trained_bytes": options.steps * WINDOW * BATCH,
            **evidence.measured_on(options, texts),
        },
        chosen[-1:] if options.smoke else chosen,
        lambda setting: measure(setting, texts, batches, options),
        markdown=markdown,
    )  # fmt: skip


def measure(setting, texts, batches, options):
    """Trains a draft layer, and says what it is worth."""
    out = options.out / "".join(c if c.isalnum() else "-" for c in setting["trial"])
    train(out, *TRIALS[setting["trial"]], options)
    drafting = load(options.model, heads=out / "heads", dtype="float32")
    forced = teacher_forced.of_heads(drafting, batches, max_patches=PATCHES, steps=DRAFT)
    return {
        **forced["draft_layer"],
        **{f"T={temperature:g}": kept(drafting, texts, temperature, options.new)
           for temperature in (0.0, 1.0)},
    }  # fmt: skip


def train(out, loss, steps, decay, own, options):
    """Trains a draft layer, unless it is there."""
    if (out / "heads").exists():
        return
    learned_from = (own_text(options),) if own else sources(options.data)
    arguments = [
        "heads", "--init", options.model, "--heads.draft-layer", *DEPTHS,
        "--heads.draft.window", "64", "--heads.draft.latent", "--loss-of", loss,
        "--decay", str(decay), "--own-outputs", str(steps), "--max-patches", str(PATCHES),
        *data(WINDOW, BATCH),
        *muon(options.steps, cooldown=0.4, warmup=min(60, options.steps // 4)),
    ]  # fmt: skip
    subprocess.run(recipes.command(arguments, learned_from, out), check=True)


def own_text(options) -> Source:
    """Texts that the model samples from nothing but a line break, a document each."""
    path = options.out / "own.jsonl"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        model = load(options.model, dtype="float32")
        unfinished = path.with_suffix(".part")
        with unfinished.open("w") as file:
            count = options.own_bytes // OWN
            for start in range(0, count, ROWS):
                written = bytelax.generate(
                    model, ["\n"] * min(ROWS, count - start), max_new_bytes=OWN, temperature=1.0,
                    seeds=start, allow_eos=False,
                )  # fmt: skip
                for text in written.bytes:
                    file.write(json.dumps({"text": text.decode(errors="ignore")}) + "\n")
        unfinished.rename(path)
    return Source(str(path))


def kept(model, texts, temperature, new):
    drafter = Contestant("eagle", {"draft_length": DRAFT})
    found = evidence.decoded(
        model, [text for _, text in texts], drafter, new=new, temperature=temperature
    )
    figures = evidence.figures(found)
    names = ("bytes_per_round", "bytes_per_round_without_loops", "loops")
    return {name: figures[name] for name in names}


def markdown(report):
    header = (
        "loss", "overlap, %, by place", "agreed, %", "bytes per round, T = 0, without loops",
        "T = 1",
    )  # fmt: skip
    rows = [
        (
            row["setting"]["trial"],
            *(
                ", ".join(f"{100 * share:.0f}" for share in row[what])
                for what in ("overlap", "agreed")
            ),
            intervals.shown(row["T=0"]["bytes_per_round_without_loops"]),
            intervals.shown(row["T=1"]["bytes_per_round"]),
        )
        for row in report["rows"]
    ]
    return "\n".join(
        [
            "# Losses of a draft layer",
            "",
            *evidence.warning(report),
            f"A draft layer for the frozen `{report['model']}`, trained anew on "
            f"{report['trained_bytes']:,} bytes by each loss, one seed; {report['prompts']} "
            f"held-out prompts of {report['prompt_bytes']} bytes over five genres, "
            f"{report['new']} new bytes. Overlap: the chance that a byte drawn from the layer is "
            "accepted, and agreed: that both think the same byte likeliest, on held-out text, "
            "at the places 1 to 8 of a draft. In brackets 95 % intervals over prompts.",
            "",
            *study.table(header, rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
