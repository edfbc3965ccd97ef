"""What training multi-byte heads together with their trunk, from scratch, does to the next byte.

    python -m experiments.training.joint_heads.run --data DIR

Trains one small byte transformer twice on the same bytes: alone, and jointly with heads for the
three bytes after the next. The published figure is a slightly better training loss.
"""

import json
import pathlib

from experiments.harness import recipes, study
from experiments.harness.bundled_data import sources
from experiments.harness.recipes import Stack

MINUTES = 15
WINDOW, BATCH = 256, 16
MODELS = {
    "the next byte alone": ["byte-lm"],
    "four bytes jointly": [
        "heads", "--joint", "--heads.bytes-ahead", "3", "--loss-of", "cross-entropy",
        "--head-weight", "0.5",
    ],
}  # fmt: skip


def train(out, kind, options):
    recipes.train_small(
        [*kind, *Stack(96, 4, 256).flags("trunk")], sources(options.data), out, window=WINDOW,
        batch=BATCH, steps=options.steps, log_every=20, validate=True,
    )  # fmt: skip


def figures(out, steps):
    """Bits per byte of the last fifth of the training text, and of the validation text."""
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    late = [
        row["bits_per_byte"]
        for row in rows
        if row["split"] == "train" and row["step"] > steps * 4 / 5
    ]
    valid = [row for row in rows if row["split"] == "valid"][-1]
    return {"training": sum(late) / len(late), "validation": valid["bits_per_byte"]}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/joint_heads"))
    options.add_argument("--steps", type=int, default=500)
    options = options.parse_args()
    if options.smoke:
        options.out, options.steps = options.results / "runs", 60  # a warm-up

    def measure(setting):
        out = options.out / setting["trained_on"].replace(" ", "-")
        train(out, MODELS[setting["trained_on"]], options)
        return figures(out, options.steps)

    study.run(
        options.results / "results.json",
        {"trained_bytes": options.steps * WINDOW * BATCH},
        [{"trained_on": name} for name in MODELS],
        measure,
        markdown=markdown,
    )


def markdown(report):
    rows = [
        (row["setting"]["trained_on"], f"{row['training']:.4f}", f"{row['validation']:.4f}")
        for row in report["rows"]
    ]
    return "\n".join(
        [
            "# Heads trained jointly with their trunk",
            "",
            f"Bits per byte of the next byte after {report['trained_bytes']:,} trained bytes: over "
            "the last fifth of the training, and held out.",
            "",
            *study.table(("trained on", "training", "validation"), rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
