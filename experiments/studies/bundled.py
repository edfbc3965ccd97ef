"""Bits per byte of the bundled models on held-out text, and those of compressors.

A compressor knows nothing before the file and adapts to it; a model has learned from other text and
sees its own window only: a scale, not a race. In brackets: intervals from resampling stretches of
512 bytes. The last columns are what a BLT loses, in bits per byte over all texts, with one mean
latent, another text's latents, or latents that are one or four patches old.

    python -m experiments.studies.bundled --data DIR
"""

import math
import subprocess

from bytelax import load, score
from bytelax.models.configs import BLTConfig
from experiments import study
from experiments.harness import intervals, latent_costs
from experiments.harness.bundled_data import SPLITS, VALID, held_out
from experiments.study import Column

MODELS = ("tiny", "tiny-d", "tiny-lm", "tiny-draft")
COMPRESSORS = {"xz -9": ["xz", "-9c"], "zstd -19": ["zstd", "-19", "-c"]}
GENRES = (
    "prose, textbooks", "prose, novels", "code", "sentences, German and English",
    "sentences, French and English",
)  # fmt: skip
WINDOW, STRETCH = 1023, 512
ABLATED = 16  # windows of each text in which latents are replaced
COLUMNS = [
    Column("model", "model"),
    *(Column(genre, f"bits.{genre}", ".2f") for genre in GENRES),
    Column("mean latent", "latents.mean", "+.3f"),
    Column("another text's", "latents.other", "+.3f"),
    Column("one patch old", "latents.stale_1", "+.3f"),
    Column("four patches old", "latents.stale_4", "+.3f"),
]


def main():
    options = study.parser(__doc__)
    options.add_argument("--split", choices=SPLITS, default=VALID, help="files of the text")
    options.add_argument("--bytes", type=int, default=100_000, help="of each text, at most")
    options = options.parse_args()
    most = WINDOW + 2 if options.smoke else options.bytes
    texts = held_out(options.data, most, options.split)
    names = ["xz -9", "tiny-draft"] if options.smoke else [*COMPRESSORS, *MODELS]
    study.run(
        "bundled", options, [{"model": name} for name in names],
        lambda setting: measure(setting["model"], texts),
        conditions={"split": options.split, "bytes": {k: len(x) for k, x in texts.items()}},
        timed=False,
    )  # fmt: skip


def measure(name: str, texts: dict[str, bytes]) -> dict:
    """The row of a model, or of a compressor."""
    if name in COMPRESSORS:
        return {"bits": {k: compressed(x, COMPRESSORS[name]) for k, x in texts.items()}}
    model = load(name, dtype="float32")
    row = {"bits": {genre: bits_per_byte(model, text) for genre, text in texts.items()}}
    if isinstance(model.config, BLTConfig):
        bits = latent_costs.of_batches(
            model, list(texts.values()), length=WINDOW + 1, each=ABLATED, batch=ABLATED
        )
        costs = latent_costs.figures(bits)
        row["latents"] = {kind: cost["value"] for kind, cost in costs.items() if kind != "own"}
    return row


def bits_per_byte(model, text: bytes) -> dict | None:
    """Bits per byte, with an interval over stretches of the text."""
    (found,) = score(model, [text], window=WINDOW, stride=STRETCH).documents
    parts = [found.log_probs[begin : begin + STRETCH] for begin in range(0, len(text), STRETCH)]
    return intervals.of_ratio(
        [-part.sum() / math.log(2) for part in parts], [len(part) for part in parts]
    )


def compressed(text: bytes, command: list[str]) -> float:
    """Bits per byte of a compressed text."""
    found = subprocess.run(command, input=text, capture_output=True, check=True).stdout
    return 8 * len(found) / len(text)


if __name__ == "__main__":
    main()
