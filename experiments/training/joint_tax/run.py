"""What BLT-D's joint objective costs plain decoding, and what each departure from the paper buys.

    python -m experiments.training.joint_tax.run --data DIR --patcher runs/entropy

Trains small models of one size on the same bytes: a plain BLT, BLT-D as published with one block
size (4, 8, 16), and departures from it; then measures all of them alike on held-out text. The
recipe is that of the bundled model, made small.
"""

import pathlib

from bytelax import load
from bytelax.training.objectives import BLTD, CorruptionConfig, NextByte
from experiments.harness import recipes, study, teacher_forced
from experiments.harness.bundled_data import sources
from experiments.harness.recipes import Stack

WINDOW, BATCH, PATCHES = 256, 16, 80
SHAPE = recipes.blt(
    encoder=Stack(64, 1, 192, window=64), global_=Stack(128, 3, 384),
    decoder=Stack(64, 2, 192, window=64), hashes=509, threshold=recipes.THRESHOLD, patches=PATCHES,
)  # fmt: skip


def _block_diffusion(*sizes, mask_loss, **more):
    flags = ["blt-d", "--objective.corruption.block-sizes", *map(str, sizes)]
    for name, value in more.items():
        flags += [f"--objective.corruption.{name.replace('_', '-')}", str(value)]
    return [*flags, "--objective.corruption.most-blocks", "16", "--objective.mask-loss", mask_loss]


MODELS = {
    "BLT": ["blt"],
    "BLT-D-4": _block_diffusion(4, mask_loss="sum"),
    "BLT-D-8": _block_diffusion(8, mask_loss="sum"),
    "BLT-D-16": _block_diffusion(16, mask_loss="sum"),
    "BLT-D-16, mean": _block_diffusion(16, mask_loss="mean"),
    "mixed sizes": _block_diffusion(4, 8, 16, mask_loss="mean", t_for_each="block"),
    "mixed sizes, mid-patch": _block_diffusion(
        4, 8, 16, mask_loss="mean", t_for_each="block", mid_patch=0.5
    ),
}


def train(name, out, options):
    arguments = [*MODELS[name], *SHAPE, "--patcher", options.patcher]
    how = {"window": WINDOW, "batch": BATCH, "steps": options.steps}
    recipes.train_small(arguments, sources(options.data), out, **how)


def measure(model, batches):
    """Bits per byte, and the accuracy of fully masked blocks by size and where they start."""
    whole = teacher_forced.averages(NextByte(model.module, PATCHES), model.params, batches)
    figures = {"bits_per_byte": whole["bits_per_byte"]}
    for size in (4, 8, 16) if model.config.block_size else ():
        for place, share in (("on a boundary", 0.0), ("anywhere", 1.0)):
            corruption = CorruptionConfig(
                block_sizes=(size,), mid_patch=share, smallest_t=0.999, most_blocks=16
            )
            objective = BLTD(model.module, corruption=corruption, max_patches=PATCHES)
            found = teacher_forced.averages(objective, model.params, batches)
            figures[f"block {size} {place}"] = found["masked_accuracy"]
    return figures


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--patcher", default="runs/entropy", help="the entropy model")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/joint_tax"))
    options.add_argument("--steps", type=int, default=500)
    options.add_argument("--batches", type=int, default=24, help="of held-out text")
    options = options.parse_args()
    names = list(MODELS)
    if options.smoke:
        options.out, options.patcher = options.results / "runs", "tiny"
        options.steps, options.batches = 60, 1  # a warm-up
        names = ["BLT-D-4"]
    texts = sources(options.data)
    batches = teacher_forced.held_out(texts, options.batches, window=WINDOW, batch=BATCH)

    def row(setting):
        name = setting["model"]
        out = options.out / name.replace(", ", "-").replace(" ", "-").lower()
        train(name, out, options)
        return measure(load(out / "model", dtype="float32"), batches)

    study.run(
        options.results / "results.json",
        {
            "trained_bytes": options.steps * WINDOW * BATCH,
            "held_out_bytes": len(batches) * WINDOW * BATCH,
        },
        [{"model": name} for name in names],
        row,
        markdown=markdown,
    )


def markdown(report):
    rows = report["rows"]
    columns = [name for name in max(rows, key=len) if name not in ("setting", "load", "took")]
    return "\n".join(
        [
            "# What the joint objective of BLT-D costs",
            "",
            f"Small models after {report['trained_bytes']:,} trained bytes, on "
            f"{report['held_out_bytes']:,} bytes of held-out text: bits per byte, and of blocks "
            "that are wholly masked the share of bytes that are the likeliest.",
            "",
            *study.table(
                ("model", *(name.replace("_", " ") for name in columns)),
                [
                    (row["setting"]["model"], *(f"{row[c]:.3f}" if c in row else None
                                                for c in columns))
                    for row in rows
                ],
            ),
            "",
        ]
    )  # fmt: skip


if __name__ == "__main__":
    main()
