"""What XLA computes for users, at its own level of optimisation: exactness, and right sums.

The suite compiles with less (conftest.py), so all of it runs in processes of their own. As a
script this prints a line of JSON about one of the cases below.
"""

import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from tests.helpers.marks import exhaustive

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


def printed(*arguments):
    """The last line that Python prints where XLA optimises as it does for users."""
    environment = {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"}
    run = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=pathlib.Path(__file__).parents[1],
        env=environment | {"JAX_NUM_CPU_DEVICES": "1"},
    )
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow  # 10 to 60 s each
@pytest.mark.parametrize(
    "method",
    [
        "early-exit",
        "eagle",
        "blt-dv",
        *map(exhaustive, ("draft-model", "medusa", "lookup", "blt-s")),
    ],
)
def test_methods_are_plain_decoding_bit_for_bit(method):
    found = printed("-m", "tests.test_at_the_defaults", method)
    assert found["differ"] == 0
    assert found["accepted"] > 0


@pytest.mark.slow  # a minute each
@pytest.mark.parametrize("case", ["law-blt-dv", *map(exhaustive, ("law-blt-s", "law-medusa"))])
def test_sampled_bytes_have_the_law_of_the_model(case):
    """27 possible texts; a right sampler fails one run in 10,000 such cases."""
    found = printed("-m", "tests.test_at_the_defaults", case)
    assert found["impossible"] == 0 and found["p"] > 1e-4


# A product and a sum over many rows, as the report of jax-ml/jax#39103 has it.
REPORTED = """
import jax, jax.numpy as jnp
from bytelax.compiling import compiler_options

rows = 32_769
x = jnp.zeros((rows, 3)).at[:, 0].set(jnp.arange(rows, dtype=jnp.float32))

def last(x):
    return jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x)

print(float(jax.jit(last, compiler_options=compiler_options())(x)[-1]))
"""

# YNNPACK adds up the last layer otherwise when its states are an output too.
KEPT_STATES = """
import numpy as np
import bytelax

model = bytelax.load("tiny-lm", dtype="float32")
prompts = np.random.default_rng(0).integers(32, 127, (32, 128)).astype(np.uint8)
how = dict(max_new_bytes=4, window=9, logprobs=True, allow_eos=False)

def log_probs(method):
    out = bytelax.generate(model, [bytes(row) for row in prompts], method=method, **how)
    return np.stack([result.log_probs for result in out.results])

print(np.abs(log_probs("medusa") - log_probs("ar")).max())
"""


@pytest.mark.slow
def test_the_reported_program_is_right_with_our_options():
    assert printed("-c", REPORTED) == 32_768.0**2


@pytest.mark.slow  # 20 s
def test_training_validation_and_scoring_have_our_options(tmp_path):
    found = printed("-m", "tests.training.long_sums", str(tmp_path / "run"))
    assert found == dict.fromkeys(("1 train", "2 train", "3 train", "3 valid", "scored"), 0.0)


@pytest.mark.slow  # 20 s
def test_a_prompt_is_read_the_same_whether_its_states_are_kept():
    assert printed("-c", KEPT_STATES) == 0


if __name__ == "__main__":
    print(json.dumps((law if sys.argv[1] in LAWS else bitwise)(sys.argv[1])))
