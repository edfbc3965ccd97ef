"""How often a BLT-D fills a wholly masked block right in one step, beside a table of bigrams.

    python -m experiments.training.masked_bytes.run --data DIR --model tiny-d

Blocks begin where a patch begins. Position j of a block is right if the likeliest byte is the
text's. The table knows, of the training text, which byte is the most frequent j bytes behind the
last clean one: a model that reads no latents and no further back cannot do better than that.
"""

import gzip
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import load, vocab
from bytelax.training import objectives
from bytelax.training.objectives import CorruptionConfig
from experiments.harness import study
from experiments.harness.bundled_data import held_out

WINDOW, ROWS = 512, 16
SIZES = (4, 8, 16)
TRAINING = ("openstax_ccby", "code_stdlib")


def tables(text, longest):
    """For j = 1..longest, the most frequent byte j bytes behind each byte; i32[longest, 256]."""
    bytes_ = np.frombuffer(text, np.uint8)
    found = []
    for distance in range(1, longest + 1):
        pairs = bytes_[:-distance].astype(np.int64) * 256 + bytes_[distance:]
        found.append(np.bincount(pairs, minlength=65536).reshape(256, 256).argmax(1))
    return np.stack(found)


def filled(model, block_size):
    """A jitted function of texts: for each cell its likeliest byte, its target and if it counts."""
    # With t this close to 1 every byte of a block is masked.
    config = CorruptionConfig(block_sizes=(block_size,), smallest_t=1 - 1e-6)

    def fill(module, ids):
        text = module.encode(ids[:, :-1])
        drawn = objectives.corrupt(jax.random.key(0), ids, text.closes, config=config)
        joint = module.decoder.joint(
            ids[:, :-1],
            module.decoder.context(text.latents),
            drawn.blocks,
            patch=text.patch,
            span=text.span,
        )
        whole = drawn.blocks.length == block_size
        before = jnp.take_along_axis(ids, jnp.maximum(drawn.blocks.start - 1, 0), axis=1)
        return joint.cells.argmax(-1), drawn.targets, whole & drawn.masked.all(-1), before

    return jax.jit(lambda params, ids: model.module.apply({"params": params}, ids, method=fill))


def accuracy(params, fill, text, table):
    """Shares of right bytes by position, of the model and of the table; how many blocks.

    Args:
      params: of the model.
      fill: what `filled` gives for a block size.
      text: bytes.
      table: what `tables` gives, as many rows as a block has bytes.
    """
    begins = np.linspace(0, len(text) - WINDOW, ROWS).astype(int)
    ids = jnp.asarray([vocab.encode(text[begin : begin + WINDOW]) for begin in begins])
    guess, target, counts, before = jax.device_get(fill(params, ids))
    counts = counts & (before >= vocab.OFFSET)
    guess, target, before = guess[counts], target[counts], before[counts] - vocab.OFFSET
    return {
        "model": (guess == target).mean(0).tolist(),
        "bigrams": (target - vocab.OFFSET == table[:, before].T).mean(0).tolist(),
        "blocks": len(target),
    }


def measure(model, texts, size, table):
    """A row: each text at one block size. One program serves all of them."""
    fill = filled(model, size)
    found = {name: accuracy(model.params, fill, x, table[:size]) for name, x in texts.items()}
    return {"texts": found}


def training_text(data):
    """The beginning of what the models learned from."""
    first = (min(pathlib.Path(data, name).glob("train-*.txt.gz")) for name in TRAINING)
    return b"".join(gzip.decompress(path.read_bytes()) for path in first)


def main():
    options = study.parser(__doc__, __file__)
    options = options.parse_args()
    model = load(options.model, dtype="float32")
    sizes = SIZES[:1] if options.smoke else SIZES
    table = tables(training_text(options.data), max(sizes))
    texts = held_out(options.data, 2 * WINDOW if options.smoke else 60_000)
    study.run(
        options.results / "results.json",
        {"model": options.model, "windows": ROWS, "window_bytes": WINDOW},
        [{"block_size": size} for size in sizes],
        lambda setting: measure(model, texts, setting["block_size"], table),
        markdown=markdown,
        timed=False,
    )


def markdown(report):
    rows = [
        (name, row["setting"]["block_size"], found["blocks"], *map(_percent, (
            found["model"], found["bigrams"]
        )))
        for row in report["rows"]
        for name, found in row["texts"].items()
    ]  # fmt: skip
    return "\n".join(
        [
            "# Masked blocks filled in one step",
            "",
            f"`{report['model']}`, {report['windows']} windows of {report['window_bytes']} bytes "
            f"of each held-out text, {study.machine(report)}. Per cent of bytes that are the "
            "likeliest, by position in the block; bigrams know the last clean byte alone.",
            "",
            *study.table(("text", "block", "blocks", "model", "bigrams"), rows),
            "",
        ]
    )


def _percent(shares):
    return ", ".join(f"{100 * share:.0f}" for share in shares)


if __name__ == "__main__":
    main()
