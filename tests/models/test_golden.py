"""The BLT against transformers: recorded ids, entropies, patches and logits of tiny models."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import checkpoints, vocab
from bytelax.models.blt import BLT, encoder
from tests.golden import cases

TOLERANCE = 2e-5


@functools.cache
def golden(name):
    """The case, its config and the parallel pass over its text and continuation."""
    case = cases.load(name)
    config, params = checkpoints.read(case.directory, dtype="float32")
    ids = np.concatenate([case.ids, case.continuation])
    forward = jax.jit(functools.partial(BLT(config).apply, method="forward"))
    return case, config, forward({"params": params}, jnp.asarray(ids[None]))


def patch_lengths(closes):
    """Lengths of the patches of a text and the byte after it, from where patches end."""
    return np.diff([-1, *np.flatnonzero(closes), len(closes)])


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "base" else pytest.mark.slow) for name in cases.NAMES],
)
class TestGolden:
    def test_hash_ids(self, name):
        case, config, _ = golden(name)
        padded = np.pad(case.ids, (config.hashing.history, 0), constant_values=vocab.BOE)
        hash_ids = jax.jit(functools.partial(encoder.hash_ids, config=config.hashing))
        rows = hash_ids(padded[None])
        np.testing.assert_array_equal(rows[0], case.hash_ids)

    def test_entropies(self, name):
        case, _, forward = golden(name)
        entropies = forward.entropies[0, : len(case.ids)]
        np.testing.assert_allclose(entropies, case.entropies, rtol=0, atol=TOLERANCE)

    def test_patch_lengths(self, name):
        case, _, forward = golden(name)
        assert case.threshold_margin > 10 * TOLERANCE
        closes = np.asarray(forward.closes[0])
        np.testing.assert_array_equal(patch_lengths(closes), case.continuation_patch_lengths)
        text = closes[: len(case.ids)]
        np.testing.assert_array_equal(patch_lengths(text), case.patch_lengths)

    def test_logits(self, name):
        case, _, forward = golden(name)
        logits = np.asarray(forward.logits[0])[case.logit_positions][:, case.logit_columns]
        np.testing.assert_allclose(logits, case.logits, rtol=0, atol=TOLERANCE)

    def test_greedy_continuation(self, name):
        case, _, forward = golden(name)
        assert case.top2_margin > 10 * TOLERANCE
        logits = np.asarray(forward.logits[0, len(case.ids) - 1 : -1, vocab.OFFSET :])
        np.testing.assert_array_equal(logits.argmax(-1) + vocab.OFFSET, case.continuation)


def test_the_cases_cover_what_they_are_named_for():
    longest = {name: cases.load(name).patch_lengths.max() for name in cases.NAMES}
    assert longest["byte_patches"] == 1
    assert longest["max_patch_length"] == 4
    assert longest["long_patch"] == 1000
    assert (cases.load("base").ids >= 128 + vocab.OFFSET).sum() > 50  # multi-byte characters
