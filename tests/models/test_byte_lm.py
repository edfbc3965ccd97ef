"""Which bytes the logits of a byte transformer depend on."""

import functools

import jax
import numpy as np
import pytest

from bytelax import vocab
from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from tests.helpers.marks import slow
from tests.helpers.models_for_tests import louder_tables

LENGTH = 24


@functools.cache
def model(window=None, mask_documents=False):
    trunk = TransformerConfig(
        dim=16, layers=2, heads=2, kv_heads=1, head_dim=8, ffn_dim=32, window=window
    )
    module = ByteLM(ByteLMConfig(trunk=trunk, mask_documents=mask_documents))
    key = jax.random.key(0, impl="rbg")  # compiles in less time than the default
    params = jax.jit(module.init)(key, np.zeros((1, 1), np.int32))
    # Initial tables are small: at ten times that a byte is heard through every layer.
    params = louder_tables(params, 10)
    apply = jax.jit(module.apply)
    return lambda ids: np.asarray(apply(params, ids))


def text(seed=0):
    return np.random.default_rng(seed).integers(4, vocab.SIZE, (1, LENGTH), np.int32)


def heard(logits, ids):
    """bool[j, i]: whether another byte at j changes the logits at i, bit for bit."""
    changed = np.repeat(ids, LENGTH, axis=0)
    where = np.arange(LENGTH)
    changed[where, where] = 4 + (changed[where, where] - 4 + 1) % 256
    same = np.repeat(ids, LENGTH, axis=0)
    return (logits(changed) != logits(same)).any(-1)


@pytest.mark.parametrize("window", [slow(None), slow(1), slow(2), 5])
def test_windowed_causal_mask(window):
    distance = np.arange(LENGTH) - np.arange(LENGTH)[:, None]  # from byte j to query i
    reach = LENGTH if window is None else 2 * (window - 1)
    expected = (distance >= 0) & (distance <= reach)
    np.testing.assert_array_equal(heard(model(window), text()), expected)


def test_eos_ends_a_document():
    ids = text(1)
    ids[0, [6, 13]] = vocab.EOS
    document = np.repeat([0, 1, 2], [7, 7, LENGTH - 14])  # an EOS is the last of its own
    distance = np.arange(LENGTH) - np.arange(LENGTH)[:, None]
    inside = (distance >= 0) & (document == document[:, None])
    changes = heard(model(mask_documents=True), ids)
    others = ids[0] != vocab.EOS  # another id in place of an EOS moves the documents themselves
    np.testing.assert_array_equal(changes[others], inside[others])
    whole = (distance >= 0) & (distance <= 8)  # two layers of windows, whatever ends within them
    np.testing.assert_array_equal(heard(model(5), ids), whole)


def test_a_document_reads_the_same_behind_another():
    ids = text(2)
    ids[0, 9] = vocab.EOS
    logits = model(mask_documents=True)
    alone = np.concatenate([ids[:, 10:], text(3)[:, :10]], axis=1)
    np.testing.assert_allclose(logits(ids)[:, 10:], logits(alone)[:, : LENGTH - 10], atol=1e-4)
