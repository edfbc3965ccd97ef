"""Whatever drafts, greedy output is that of the empty draft, bit for bit."""

import functools

import jax
import numpy as np
import pytest

from bytelax.systems import DraftModelDrafter, LookupDrafter
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

BYTE_LM = models.BYTE_LMS["window"]
WIDTH = 6


@functools.cache
def nearly(config, dtype="float32"):
    """Parameters that guess the model well, and not always."""
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda x: x + np.float32(0.02) * rng.standard_normal(x.shape, np.float32).astype(x.dtype),
        models.model(config, dtype).params,
    )


def lookup():
    return LookupDrafter(WIDTH, shortest=2, longest=5), {}


def draft_model():
    return DraftModelDrafter(models.model(BYTE_LM).target(), WIDTH), nearly(BYTE_LM)


CASES = [
    slow(BYTE_LM, "float32", lookup),
    (BYTE_LM, "float32", draft_model),
    slow(BYTE_LM, "bfloat16", draft_model),
    exhaustive(models.BASE, "float32", draft_model),
    exhaustive(models.BASE, "bfloat16", draft_model),
]


@pytest.mark.parametrize(
    ("config", "dtype", "make"), CASES, ids=lambda x: getattr(x, "__name__", None)
)
def test_greedy_output_is_that_of_the_empty_draft(config, dtype, make):
    drafter, own = make()
    assert drafter.draft_length == WIDTH
    decoding = loops.run(models.model(config, dtype), drafter, own)
    loops.assert_same(decoding, loops.reference(config, dtype, WIDTH))
    counts = decoding.counts
    assert 0 < counts.accepted.sum() < counts.drafted.sum()
    np.testing.assert_array_equal(counts.bytes, loops.BUDGETS)


@pytest.mark.slow  # test_batches.py
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_are_apart_and_padding_is_not_read(temperature):
    drafter, own = draft_model()
    run = functools.partial(loops.run, models.model(BYTE_LM), drafter, own, temperature=temperature)
    first = run()
    garbage = loops.prompts()
    for row, length in enumerate(loops.LENGTHS):
        garbage[row, length:] = garbage[row, length - 3]
    loops.assert_same(run(ids=garbage), first)
    if temperature == 0:  # chance comes from the seed, and here a seed is a row's number
        order = np.array([2, 0, 1])
        moved = run(order=order)
        np.testing.assert_array_equal(moved.text.length, first.text.length[order])
        np.testing.assert_array_equal(moved.log_probs, first.log_probs[order])
    other = loops.prompts(seed=1)
    other[1] = loops.prompts()[1]
    beside = run(ids=other)
    np.testing.assert_array_equal(beside.log_probs[1], first.log_probs[1])
