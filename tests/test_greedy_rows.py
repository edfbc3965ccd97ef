"""Greedy rows of lossless methods are those of the empty draft in the same windows, bit for bit.

In batches of one row and of three, with budgets and stop strings that end rows inside drafts, in
windows of the method's own width and in wider ones. With compiled kernels they are those of plain
decoding of the row alone, without a window, and so are those of trees and of early exits that hand
over what they computed. Otherwise these are exact up to rounding: tests/decode/test_exact_law.py.
"""

import functools

import jax
import numpy as np
import pytest
from bytelax_kernels import native

import bytelax
from tests.helpers import heads_of_a_blt
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive

TEXTS = [
    b"The cells of the body and the cells of the",
    b"One two three, one two three, one ",
    b"def add(a, b):\n    return a + b\n\ndef sub(",
    b"In the city of the city of ",
    b"It is what it is, and what it was it",
    b"naive \xe6\x97\xa5\xe6\x9c\xac ",
]
VALUES = [
    bytes(np.random.default_rng(seed).integers(0, 3, 5 + 4 * seed).tolist()) for seed in range(6)
]
NEVER = b"\xff\xff"
NEW = 40
MODELS = {
    "tiny": (functools.partial(bytelax.load, "tiny"), TEXTS),
    "tiny-d": (functools.partial(bytelax.load, "tiny-d"), TEXTS),
    "tiny-lm": (functools.partial(bytelax.load, "tiny-lm"), TEXTS),
    "tiny-lm, bfloat16": (functools.partial(bytelax.load, "tiny-lm", dtype="bfloat16"), TEXTS),
    "heads": (heads_of_a_blt.blt, VALUES),
    "norms": (functools.partial(models.model, models.BYTE_LMS["qwen"]), TEXTS),
    "table": (heads_of_a_blt.with_block_table, VALUES),
}
SMALL = {"draft_model": "tiny-draft"}
CASES = [  # model, window, rows, methods
    ("tiny-lm", 5, 1, [("eagle", {"draft_length": 4})]),
    ("tiny", 9, 3, [
        ("blt-s", {"draft_length": 8}),
    ]),
    ("tiny-d", 9, 3, [("blt-dv", {"block_size": 8})]),
    ("tiny-lm", 5, 3, [
        ("draft-model", {"draft_length": 4, **SMALL}), ("eagle", {"draft_length": 4}),
        ("layer-skip", {"draft_length": 4}),
        ("composed", {"draft_length": 4, "verify_from": "embedding"}),
    ]),
    ("tiny-lm, bfloat16", 5, 3, [("eagle", {"draft_length": 4})]),
    ("heads", 4, 3, [("eagle", {"draft_length": 3}), ("dflash", {})]),
]  # fmt: skip
MORE = [
    ("tiny", 9, 3, [
        ("blt-s", {"draft_length": 4, "latent": "refresh"}), ("lookup", {"draft_length": 4}),
        ("draft-model", {"draft_length": 4, **SMALL}),
    ]),
    ("tiny-d", 9, 3, [
        ("blt-dv", {"block_size": 5}),
        ("blt-dv", {"block_size": 8, "unmask": "confidence", "alpha": 0.3}),
    ]),
    ("tiny-lm", 5, 3, [
        ("two-byte", {}), ("medusa", {}),
        ("early-exit", {"draft_length": 4, "verify_from": "embedding"}),
    ]),
    ("tiny-lm, bfloat16", 5, 3, [("lookup", {"draft_length": 4})]),
    ("heads", 4, 3, [("medusa", {})]),
    ("norms", 5, 3, [
        ("lookup", {"draft_length": 4}), ("layer-skip", {"draft_length": 4, "skip_mlp": (1,)}),
    ]),
    ("table", 4, 3, [("blt-dv", {"block_size": 3})]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def programs_of_one_case():
    """Those of all cases would need more memory maps than a process may have."""
    yield
    jax.clear_caches()


@functools.cache
def loaded(name):
    return MODELS[name][0]()


def rows(name, batch, window, requests, **method):
    """All that is compared: {(request, row): (bytes, why it ended, log-probabilities)}."""
    found, kept = {}, 0
    for number, (prompts, new, stop) in enumerate(requests):
        for first in range(0, len(prompts), batch):
            some = prompts[first : first + batch]
            how = {"max_new_bytes": new, "stop": stop, "window": window, "logprobs": True}
            out = bytelax.generate(loaded(name), some, **how, **method)
            kept += out.stats.accepted
            for row, result in enumerate(out.results):
                found[number, first + row] = result.bytes, result.stop, result.log_probs.tobytes()
    return found, kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "window", "batch", "methods"), [*CASES, *(exhaustive(*case) for case in MORE)]
)
def test_greedy_rows(name, window, batch, methods):
    prompts = MODELS[name][1][: 4 if batch == 1 else None]
    plain = functools.partial(rows, name, batch, window)
    free, _ = plain([(prompts, NEW, [NEVER] * 4)])
    # What stands in the middle of the outputs: rows end there by a stop string, inside drafts too.
    middles = [text[9:11] for text, *_ in free.values() if len(text) > 11][:4]
    stops = (middles + [NEVER] * 4)[:4]
    requests = [(prompts, NEW, [NEVER] * 4), (prompts, 11, [NEVER] * 4), (prompts, NEW, stops)]
    expected, _ = plain(requests)
    for method, options in methods:
        found, kept = plain(requests, method=method, **options)
        different = [row for row in expected if found[row] != expected[row]]
        count = f"{len(different)} of {len(found)} rows differ, {kept} drafted bytes kept"
        print(f"\n{name}, {method} {options}, window {window}, batch {batch}: {count}")
        assert not different and kept
    if native.available():
        assert plain_alone(name, requests) == expected


@pytest.mark.slow
@pytest.mark.skipif(not native.available(), reason=str(native.why_not()))
@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("medusa", {"branches": (3, 2, 1), "nodes": 8}),
        ("eagle", {"draft_length": 3, "beam": 2, "nodes": 8}),
        ("early-exit", {"draft_length": 4, "verify_from": "exit"}),
    ],
)
def test_trees_and_exits_with_compiled_kernels(method, options):
    requests = [(TEXTS, NEW, [NEVER] * 4)]
    found, kept = rows("tiny-lm", 3, None, requests, method=method, **options)
    assert found == plain_alone("tiny-lm", requests) and kept


def plain_alone(name, requests):
    return rows(name, 1, 1, requests)[0]
