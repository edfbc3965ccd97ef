"""How often a BLT-D fills a wholly masked block right in one step, beside a table of bigrams.

    python experiments/masked_bytes.py --data DIR [--model tiny-d]

Blocks begin where a patch begins. Position j of a block is right if the likeliest byte is the
text's. The table knows, of the training text, which byte is the most frequent j bytes behind the
last clean one: a model that reads no latents and no further back cannot do better than that.
"""

import argparse
import gzip
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
from bundled_figures import held_out

from bytelax import load, vocab
from bytelax.training import corruption
from bytelax.training.corruption import CorruptionConfig

WINDOW, ROWS = 512, 16
TRAINING = ("openstax_ccby", "code_stdlib")  # with as many bytes of sentence pairs


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
        drawn = corruption.corrupt(jax.random.key(0), ids, text.closes, config=config)
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


def accuracy(model, texts, block_size, table):
    """Share of right bytes by position, of the model and of the table: two lists."""
    fill = filled(model, block_size)
    right, tabled, count = np.zeros(block_size), np.zeros(block_size), 0
    for text in texts.values():
        begins = np.linspace(0, len(text) - WINDOW, ROWS).astype(int)
        ids = jnp.asarray([vocab.encode(text[begin : begin + WINDOW]) for begin in begins])
        guess, target, counts, before = jax.device_get(fill(model.params, ids))
        counts &= before >= vocab.OFFSET
        guess, target, before = guess[counts], target[counts], before[counts] - vocab.OFFSET
        right += (guess == target).sum(0)
        tabled += (target - vocab.OFFSET == table[:block_size, before].T).sum(0)
        count += len(target)
    return (right / count).tolist(), (tabled / count).tolist(), count


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", default="tiny-d")
    parser.add_argument("--results", type=pathlib.Path, default=pathlib.Path("experiments/results"))
    options = parser.parse_args()
    model = load(options.model, dtype="float32")
    known = b"".join(
        gzip.decompress(
            sorted(pathlib.Path(options.data, name).glob("train-*.txt.gz"))[0].read_bytes()
        )
        for name in TRAINING
    )
    table = tables(known, 16)
    report = {}
    for name, text in held_out(options.data, 60_000).items():
        for size in (4, 8, 16):
            own, bigrams, count = accuracy(model, {name: text}, size, table)
            report[f"{name}, {size}"] = {"model": own, "bigrams": bigrams, "blocks": count}
            print(name, size, np.round(own[:4], 3), np.round(bigrams[:4], 3), count, flush=True)
    options.results.mkdir(exist_ok=True)
    (options.results / "masked_bytes.json").write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
