"""Greedy output of a byte transformer that drafts for itself, bit for bit that of the empty draft.

Trees lie otherwise in the caches than chains do, and an exit that hands its states over ran at
another width: those are compared on bytes, and on log-probabilities to rounding.
"""

import functools

import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import Empty, lossless
from tests.helpers import decoding as loops
from tests.helpers import self_drafting_models
from tests.helpers.marks import exhaustive
from tests.helpers.self_drafting_models import CHAINS, TREES

VALUES = self_drafting_models.CONFIG.vocab_size - vocab.OFFSET


def prompts(seed=0):
    ids = loops.prompts(seed)
    return np.where(ids < vocab.OFFSET, ids, vocab.OFFSET + ids % VALUES)


def run(make, dtype="float32", **options):
    drafter, own = make()
    accept = TREES.get(make, lossless)
    ids = options.pop("ids", prompts())
    keep = (1, 2, 3)
    return loops.run(
        self_drafting_models.trunk(dtype),
        drafter,
        own,
        ids=ids,
        accept=accept,
        keep=keep,
        **options,
    )


@functools.cache
def reference(dtype, width):
    return loops.run(self_drafting_models.trunk(dtype), Empty(width), ids=prompts(), keep=(1, 2, 3))


def sensible(decoding):
    counts = decoding.counts
    np.testing.assert_array_equal(counts.bytes, loops.BUDGETS)
    assert 0 < counts.accepted.sum() < counts.drafted.sum()


@pytest.mark.slow  # by their names: ../../test_self_drafting_methods.py
@pytest.mark.parametrize("make", CHAINS, ids=lambda make: make.__name__)
def test_greedy_output_is_that_of_the_empty_draft(make):
    decoding = run(make)
    sensible(decoding)
    width = decoding.counts.drafted_by_position.shape[1]
    loops.assert_same(decoding, reference("float32", width))


@pytest.mark.slow  # test_promises.py
@pytest.mark.parametrize(
    "make", [exhaustive(self_drafting_models.composed), self_drafting_models.draft_layer]
)
def test_in_bfloat16(make):
    decoding = run(make, "bfloat16")
    width = decoding.counts.drafted_by_position.shape[1]
    loops.assert_same(decoding, reference("bfloat16", width))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [self_drafting_models.handed_over, *TREES], ids=lambda make: make.__name__
)
def test_greedy_output_to_rounding(make):
    decoding = run(make)
    sensible(decoding)
    expected = reference("float32", 3)
    there = np.arange(loops.BUFFER) < np.asarray(expected.text.length)[:, None]
    np.testing.assert_array_equal(
        np.where(there, decoding.text.ids, 0), np.where(there, expected.text.ids, 0)
    )
    np.testing.assert_allclose(decoding.log_probs, expected.log_probs, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [self_drafting_models.draft_layer, self_drafting_models.multi_byte_tree]
)
def test_rows_are_apart_and_padding_is_not_read(make):
    first = run(make)
    garbage = prompts()
    for row, length in enumerate(loops.LENGTHS):
        garbage[row, length:] = garbage[row, length - 3]
    loops.assert_same(run(make, ids=garbage), first)
    other = prompts(seed=1)
    other[1] = prompts()[1]
    beside = run(make, ids=other)
    np.testing.assert_array_equal(beside.log_probs[1], first.log_probs[1])
