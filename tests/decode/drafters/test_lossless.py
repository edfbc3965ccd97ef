"""Whatever drafts, greedy output is that of the empty draft, bit for bit."""

import functools

import decoding as loops
import jax
import models_for_tests as models
import numpy as np
import pytest

from bytelax.decode.drafters import (
    DraftModel,
    Lookup,
    by_batch,
    chain,
    extend_with,
    stop_adaptively,
    stop_below,
)

BYTE_LM = models.BYTE_LMS["window"]
STRIDE = models.VARIANTS["stride"]  # a BLT that is quick to compile
WIDTH = 6


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.slow)


def draft_model(config, width=WIDTH):
    return DraftModel(models.model(config).target(), width)


@functools.cache
def nearly(config, dtype="float32"):
    """Parameters that guess the model well, and not always."""
    rng = np.random.default_rng(5)
    return jax.tree.map(
        lambda x: x + np.float32(0.02) * rng.standard_normal(x.shape, np.float32).astype(x.dtype),
        models.model(config, dtype).params,
    )


def lookup():
    return Lookup(WIDTH, shortest=2, longest=5), {}


def either():
    return chain(Lookup(3, 2, 5), draft_model(BYTE_LM)), ({}, nearly(BYTE_LM))


def both():
    return extend_with(draft_model(BYTE_LM, 3), Lookup(3, 2, 5)), (nearly(BYTE_LM), {})


def fewer():
    return by_batch(stop_below(draft_model(BYTE_LM), 0.036), {1: 4, 2: 1, 3: 0}), nearly(BYTE_LM)


def adapting():
    return stop_adaptively(draft_model(BYTE_LM), 0.036, step=0.05), nearly(BYTE_LM)


def latent():
    return extend_with(draft_model(STRIDE, 3), Lookup(3, 2, 5)), (nearly(STRIDE), {})


CASES = [
    (BYTE_LM, "float32", lookup),
    (BYTE_LM, "float32", either),
    slow(BYTE_LM, "float32", both),
    slow(BYTE_LM, "float32", fewer),
    slow(BYTE_LM, "float32", adapting),
    slow(BYTE_LM, "bfloat16", either),
    slow(STRIDE, "float32", latent),
    slow(models.BASE, "float32", either),
    slow(models.BASE, "bfloat16", either),
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
    if make is fewer:  # two rows drafted a byte, the last one four
        assert counts.drafted_by_position[:, 1:].any(1).sum() == 1
    if make is adapting:  # each row to its own
        assert len(set(decoding.draft_state.threshold.tolist())) == len(loops.BUDGETS)


@pytest.mark.slow  # test_batches.py
@pytest.mark.parametrize(("make", "temperature"), [slow(both, 0.0), (either, 1.0)])
def test_rows_are_apart_and_padding_is_not_read(make, temperature):
    drafter, own = make()
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
