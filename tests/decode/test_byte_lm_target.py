"""The byte transformer as a target: any split of a text gives the same bits."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.targets.byte_lm import ByteLMTarget
from tests.helpers import models_for_tests as models
from tests.helpers import windows

LENGTH = 48
BATCH = 3
STEPS = {1: 3 * LENGTH, 8: LENGTH, 17: LENGTH}
TOLERANCE = 1e-5
NOWHERE = np.zeros(BATCH, np.int32)
RAGGED = np.array([1, 13, 30], np.int32)


@functools.cache
def text():
    return models.random_text(BATCH, LENGTH)


def target_for(model, width, prefill_width=8):
    return ByteLMTarget(model.module, LENGTH, window=width, prefill_width=prefill_width)


def taken(model, target, split, *, begin=NOWHERE, state=None):
    """Logits by position, and the state behind."""
    if state is None:
        state = windows.blank(target, model.params, split.counts.shape[1])
    state, (logits, _) = windows.run(model.params, state, split, target=target)
    return windows.by_position(logits, split, begin, LENGTH), state


CASES = [("window", 8, "float32"), ("documents", 8, "float32"), ("qwen", 8, "float32")]
CASES += [
    pytest.param("window", width, dtype, marks=mark)
    for width, dtype, mark in (
        (1, "float32", pytest.mark.slow),
        (8, "bfloat16", pytest.mark.slow),
        (17, "float32", pytest.mark.exhaustive),
        (1, "bfloat16", pytest.mark.exhaustive),
        (17, "bfloat16", pytest.mark.exhaustive),
    )
]
CASES += [pytest.param("plain", 8, "float32", marks=pytest.mark.exhaustive)]


@pytest.mark.parametrize(("name", "width", "dtype"), CASES)
def test_any_split_gives_the_same_bits(name, width, dtype):
    model = models.model(models.BYTE_LMS[name], dtype)
    target = target_for(model, width)
    plain = windows.plain(text(), NOWHERE, width, STEPS[width])
    reference, state = taken(model, target, plain)
    assert np.isfinite(reference).all()
    for seed in range(3):
        split = windows.at_random(text(), NOWHERE, width, STEPS[width], seed)
        logits, other = taken(model, target, split)
        np.testing.assert_array_equal(logits, reference)
        np.testing.assert_array_equal(other.length, state.length)
        np.testing.assert_array_equal(other.last_eos, state.last_eos)
        passes = target.passes(other)["decoder_passes"]
        np.testing.assert_array_equal(passes, (split.counts > 0).sum(0))
    if dtype == "float32":
        parallel = np.asarray(model.logits(text()))
        np.testing.assert_allclose(reference, parallel, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(("width", "prefill_width"), [(1, 8), (8, 5)])
def test_prefill_of_ragged_prompts(width, prefill_width):
    model = models.model(models.BYTE_LMS["window"])
    target = target_for(model, width)
    after = np.arange(LENGTH) >= RAGGED[:, None] - 1
    garbage = np.where(after, models.random_text(BATCH, LENGTH, seed=7), text())
    results = []
    for ids in (text(), garbage):
        state = windows.prefill(
            model.params, ids, RAGGED, target=target_for(model, width, prefill_width)
        )
        assert (target.passes(state)["decoder_passes"] == 0).all()
        splits = [windows.plain(text(), RAGGED - 1, width, STEPS[width])]
        splits += [windows.at_random(text(), RAGGED - 1, width, STEPS[width], 8)]
        results += [
            taken(model, target, split, begin=RAGGED - 1, state=state)[0] for split in splits
        ]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
    parallel = np.asarray(model.logits(text()))
    np.testing.assert_allclose(results[0][after], parallel[after], rtol=0, atol=TOLERANCE)


def test_nothing_reads_slots_that_were_not_kept():
    model = models.model(models.BYTE_LMS["window"])
    window = model.config.trunk.window
    target = target_for(model, 8)
    split = windows.at_random(text(), NOWHERE, 8, STEPS[8], 4)
    # The first 7 windows, then the rest; windows of count 0 keep the shapes.
    first = windows.Split(
        split.windows, np.where(np.arange(STEPS[8])[:, None] < 7, split.counts, 0)
    )
    rest = windows.Split(*(np.roll(part, -7, axis=0) for part in split))
    rest.counts[-7:] = 0
    _, state = taken(model, target, first)
    begin = np.asarray(state.length)
    newest = begin[:, None] - 1

    def spoil(cache):
        slots = cache.shape[2]
        position = newest - (newest - np.arange(slots)) % slots
        dead = (position < 0) | (position < newest + 2 - window)
        return jax.numpy.where(dead[:, None, :, None], 1e30, cache)

    poisoned = dataclasses.replace(state, caches=jax.tree.map(spoil, state.caches))
    clean, _ = taken(model, target, rest, begin=begin, state=state)
    spoiled, _ = taken(model, target, rest, begin=begin, state=poisoned)
    np.testing.assert_array_equal(spoiled, clean)
    assert np.isfinite(clean).all() and np.abs(clean[:, -1]).max() > 0


def test_a_node_of_a_tree_is_read_as_the_end_of_its_branch():
    """Also where the branch is longer than the attention window."""
    model = models.model(models.BYTE_LMS["window"])
    target = target_for(model, 12)
    state = windows.prefill(model.params, text(), RAGGED, target=target)
    tree = jnp.asarray(models.random_text(BATCH, 12, seed=3, eos=False))
    above = [0, 1, 2, 0, 4, 5, 6, 3, 7, 9, 10]  # of nodes 1, 2, ...; node 11 is the deepest
    parents = jnp.asarray([above] * BATCH)
    extend = jax.jit(target.extend)
    logits, _ = extend(model.params, state, tree, parents=parents)
    branches = {0: [0]}
    for node, parent in enumerate(above, 1):
        branches[node] = [*branches[parent], node]
    assert len(branches[11]) > model.config.trunk.window
    for path in (np.array(branches[node]) for node in (8, 11)):
        chain = jnp.pad(tree[:, path], ((0, 0), (0, 12 - len(path))))
        alone = extend(model.params, state, chain)[0][:, : len(path)]
        np.testing.assert_allclose(logits[:, path], alone, rtol=0, atol=TOLERANCE)


def test_a_window_wider_than_the_caches_is_an_error():
    model = models.model(models.BYTE_LMS["window"])
    target = target_for(model, 4)
    state = windows.blank(target, model.params, 1)
    with pytest.raises(ValueError, match="a window of 5 bytes does not fit a target of width 4"):
        target.extend(model.params, state, jnp.zeros((1, 5), jnp.int32))
