"""What narrower weights cost: bits per byte of the bundled models on held-out text.

    python -m experiments.quality.int8.run --data DIR

The same texts and windows for every kind of weights. The entropy model is float32 in all of them,
so the patches are the same. Pairs of windows give the interval: the difference on each text.
"""

import numpy as np

from bytelax import load, score
from experiments.harness import study
from experiments.harness.bundled_data import held_out

MINUTES = 8
KINDS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8", "dtype": "float32"},
    "int8, bfloat16": {"quantize": "int8", "dtype": "bfloat16"},
}
MODELS = ("tiny", "tiny-d", "tiny-lm", "tiny-draft")
PIECES = 16  # of each text; their differences are resampled


def measure(name, texts):
    """Bits per byte of each kind, and what it costs beside float32, with 95 % intervals."""
    pieces = [
        text[len(text) * at // PIECES : len(text) * (at + 1) // PIECES]
        for text in texts.values()
        for at in range(PIECES)
    ]
    bits = {
        kind: np.array([x.bits_per_byte for x in score(load(name, **how), pieces).documents])
        for kind, how in KINDS.items()
    }
    rng = np.random.default_rng(0)
    rows = {}
    for kind, own in bits.items():
        more = own - bits["float32"]
        means = rng.choice(more, (2000, len(more))).mean(1)
        rows[kind] = {
            "bits_per_byte": own.mean(),
            "more": more.mean(),
            "interval": list(np.quantile(means, (0.025, 0.975))),
            "by_genre": dict(zip(texts, own.reshape(len(texts), PIECES).mean(1), strict=True)),
        }
    return {"kinds": rows}


def main():
    options = study.parser(__doc__, __file__, model=None)
    options.add_argument("--bytes", type=int, default=16384, help="of each of five texts")
    options = options.parse_args()
    texts = held_out(options.data, 1024 if options.smoke else options.bytes)
    study.run(
        options.results / f"{study.MAIN}.json",
        {"bytes": sum(map(len, texts.values()))},
        [{"model": name} for name in (MODELS[-1:] if options.smoke else MODELS)],
        lambda setting: measure(setting["model"], texts),
        markdown=markdown,
    )


def markdown(report):
    rows = [
        (
            f"`{row['setting']['model']}`",
            kind,
            f"{own['bits_per_byte']:.4f}",
            *(
                ("", "")
                if kind == "float32"
                else (f"{own['more']:+.5f}", " to ".join(f"{x:+.5f}" for x in own["interval"]))
            ),
        )
        for row in report["rows"]
        for kind, own in row["kinds"].items()
    ]
    conditions = study.machine(report).removeprefix("float32, ")
    return "\n".join(
        [
            "# What narrower weights cost",
            "",
            f"{report['bytes']:,} bytes of held-out text in five genres and {PIECES} pieces each, "
            "scored in windows of 1023 bytes with the default stride. More: mean difference from "
            "float32 over the pieces, with a 95 % interval from resampling them. int8: kernels and "
            f"hash table; the entropy model is float32 throughout. {conditions}.",
            "",
            *study.table(("model", "weights", "bits per byte", "more", "interval"), rows),
            "",
        ]
    )


if __name__ == "__main__":
    main()
