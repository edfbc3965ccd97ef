"""Exactness as users have it: compiled by XLA at its own level of optimisation.

The suite compiles with less (conftest.py). As a script, `at_the_defaults.py CASE` prints a line of
JSON about one of the cases below.
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np

import bytelax
from bytelax import vocab

PROMPTS = (
    b"The cell is ",
    b"def f(x):\n    ",
    b"\xff\x00\xc3",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaa",
    b"1",
)
WINDOW = 9
BITWISE = {  # model and method
    "lookup": ("tiny-lm", {"draft_length": 8}),
    "draft-model": ("tiny-lm", {"draft_model": "tiny-draft"}),
    "early-exit": ("tiny-lm", {"verify_from": "embedding"}),
    "medusa": ("tiny-lm", {}),
    "eagle": ("tiny-lm", {}),
    "blt-s": ("tiny", {"draft_length": 8}),
    "blt-dv": ("tiny-d", {"block_size": 8, "unmask": "entropy"}),
}
LAWS = {
    "law-blt-s": ("tiny", {"method": "blt-s", "draft_length": 2}),
    "law-blt-dv": ("tiny-d", {"method": "blt-dv", "block_size": 2}),
    "law-medusa": ("tiny-lm", {"method": "medusa"}),
}
SAMPLES, ROWS, BYTES, KINDS = 1024, 256, 3, 3
LAW = {"temperature": 1.3, "top_k": KINDS}


def bitwise(name):
    """Rows in which a method and plain decoding differ, at the same batch and window."""
    model, options = BITWISE[name]
    if "draft_model" in options:
        options = {"draft_model": bytelax.load(options["draft_model"])}
    run = {"max_new_bytes": 48, "logprobs": True, "window": WINDOW}
    out = bytelax.generate(bytelax.load(model), PROMPTS, method=name, **run, **options)
    plain = bytelax.generate(bytelax.load(model), PROMPTS, **run)
    differ = [
        a.bytes != b.bytes or not np.array_equal(a.log_probs, b.log_probs)
        for a, b in zip(out.results, plain.results, strict=True)
    ]
    return {"differ": int(sum(differ)), "accepted": int(out.stats.accepted)}


def law(name):
    """Chi square of the first bytes that a method samples against the model's own law of them."""
    model, options = LAWS[name]
    model, prompt = bytelax.load(model), b"The cell "
    counts = {}
    for first in range(0, SAMPLES, ROWS):
        out = bytelax.generate(
            model, [prompt] * ROWS, max_new_bytes=BYTES, seeds=list(range(first, first + ROWS)),
            allow_eos=False, **LAW, **options,
        )  # fmt: skip
        for text in out.bytes:
            counts[text] = counts.get(text, 0) + 1
    expected = {text: SAMPLES * p for text, p in exact(model, prompt).items()}
    rare = [text for text, count in expected.items() if count < 5]
    square = sum((counts.get(x, 0) - n) ** 2 / n for x, n in expected.items() if x not in rare)
    left = sum(expected[text] for text in rare)
    if left:
        square += (sum(counts.get(text, 0) for text in rare) - left) ** 2 / left
    cells = len(expected) - len(rare) + bool(left)
    p = float(jax.scipy.stats.chi2.sf(square, cells - 1))
    return {"p": p, "cells": cells, "impossible": sum(x not in expected for x in counts)}


def exact(model, prompt):
    """The law of the next bytes, from the model's logits of whole texts."""
    laws = {b"": 1.0}
    for _ in range(BYTES):
        texts = list(laws)
        ids = jnp.asarray([vocab.encode(prompt + text) for text in texts])
        logits = np.array(model.logits(ids)[:, -1], np.float64)
        logits[:, : vocab.OFFSET] = -np.inf
        longer = {}
        for text, row in zip(texts, logits / LAW["temperature"], strict=True):
            best = np.argsort(row)[-KINDS:]
            p = np.exp(row[best] - row[best].max())
            for i, share in zip(best, p / p.sum(), strict=True):
                longer[text + bytes([int(i) - vocab.OFFSET])] = laws[text] * float(share)
        laws = longer
    return laws


if __name__ == "__main__":
    print(json.dumps((law if sys.argv[1] in LAWS else bitwise)(sys.argv[1])))
