"""Greedy output of a byte transformer that drafts for itself, bit for bit that of the empty draft.

Trees lie otherwise in the caches than chains do, and an exit that hands its states over ran at
another width: those are compared on bytes, and on log-probabilities to rounding.
"""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import Empty, Method, Params, Text, lossless, trees
from bytelax.options import HeadsConfig, MedusaHead
from bytelax.systems import MedusaTreeDrafter
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models
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
    "make", [exhaustive(self_drafting_models.composed), self_drafting_models.eagle]
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
@pytest.mark.parametrize("make", [self_drafting_models.eagle, self_drafting_models.medusa_tree])
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


def test_a_wide_tree_is_grown_from_its_likeliest_nodes():
    many, grown = 5, [trees.root(jnp.ones((3, 1), int))] * 2
    levels = [slice(0, 1)] * 2
    for depth in range(3):
        law = jax.random.normal(jax.random.key(depth), (9,))  # depends on the byte before
        for i, most in enumerate((None, many)):
            before = grown[i].ids[:, levels[i], None] + 3 * jnp.arange(3)[:, None, None]
            logits = law[(before + jnp.arange(4) ** 2) % 9]
            grown[i], levels[i] = trees.grow(
                grown[i], jax.nn.log_softmax(logits), levels[i], children=3, most=most
            )
    whole, own = (trees.prune(tree, many) for tree in grown)
    np.testing.assert_allclose(np.sort(whole.scores), np.sort(own.scores), rtol=1e-6)
    assert grown[0].ids.shape[1] > grown[1].ids.shape[1]


def test_a_wide_tree_takes_little_memory():
    model = models.model(
        models.replace(models.BYTE_LM, heads=HeadsConfig(medusa=MedusaHead(count=3)))
    )
    method, params = Method(model.target(), MedusaTreeDrafter((256,) * 3, 16)), Params(model.params)
    text = Text.of([b"abc"], length=16)
    decoding = jax.eval_shape(lambda: method.init(params, text, budget=3))
    drafted = jax.jit(method.draft).lower(params, decoding).as_text()
    shapes = re.findall(r"tensor<([0-9x]+)x[a-z]", drafted)
    assert max(np.prod([*map(int, shape.split("x"))]) for shape in shapes) < 1 << 20
