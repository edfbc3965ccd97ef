"""What narrower weights cost in bits per byte of held-out text.

The same texts and windows for every kind of weights; the entropy model is float32 in all of them,
so the patches are the same. "More": the mean difference from float32 over pieces of the texts, with
a 95 % interval from resampling them. int8: kernels and hash table.

    python -m experiments.studies.int8 --data DIR
"""

import numpy as np

from bytelax import load, score
from experiments import study
from experiments.harness import intervals
from experiments.harness.bundled_data import held_out
from experiments.study import Column

KINDS = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int8": {"quantize": "int8", "dtype": "float32"},
    "int8, bfloat16": {"quantize": "int8", "dtype": "bfloat16"},
}
MODELS = ("tiny", "tiny-d", "tiny-lm", "tiny-draft")
PIECES = 16  # of each text
COLUMNS = [
    Column("model", "model"),
    Column("weights", "kind"),
    Column("bits per byte", "bits_per_byte", ".4f"),
    Column("more", "more", "+.5f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--bytes", type=int, default=16384, help="of each of five texts")
    options = options.parse_args()
    texts = held_out(options.data, 1024 if options.smoke else options.bytes)
    study.run(
        "int8", options,
        [{"model": name} for name in (MODELS[-1:] if options.smoke else MODELS)],
        lambda setting: measure(setting["model"], texts),
        conditions={"bytes": sum(map(len, texts.values()))},
    )  # fmt: skip


def measure(name: str, texts: dict[str, bytes]) -> list[dict]:
    """A row for each kind of weights."""
    pieces = [
        text[len(text) * at // PIECES : len(text) * (at + 1) // PIECES]
        for text in texts.values()
        for at in range(PIECES)
    ]
    bits = {
        kind: np.array([x.bits_per_byte for x in score(load(name, **how), pieces).documents])
        for kind, how in KINDS.items()
    }
    more = {kind: own - bits["float32"] for kind, own in bits.items()}
    return [
        {
            "kind": kind,
            "bits_per_byte": own.mean(),
            "more": intervals.of_ratio(more[kind], [1] * len(own)) if more[kind].any() else None,
        }
        for kind, own in bits.items()
    ]


if __name__ == "__main__":
    main()
