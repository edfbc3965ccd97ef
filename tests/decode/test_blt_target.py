"""The incremental BLT: its patches, its passes, and rows beside one another."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import dispatch

from bytelax import checkpoints, vocab
from bytelax.models.blt import BLT
from bytelax.targets import blt
from bytelax.targets.blt import BLTTarget
from tests.golden import cases
from tests.helpers import models_for_tests as models
from tests.helpers import windows
from tests.helpers.marks import exhaustive
from tests.helpers.windows import BATCH, LENGTH, STEPS, TOLERANCE, Taken, target_for, text


@pytest.mark.slow  # drafters/test_blt_drafters.py
def test_a_row_is_the_same_beside_any_others():
    model = models.model(models.BASE)
    target = target_for(model, 8)

    def beside(others, row, seed):
        ids = models.random_text(8, LENGTH, seed=others)
        ids[row] = text()[1]
        split = windows.at_random(ids, np.zeros(8, int), 8, STEPS[8], seed)
        return Taken(model, target, split, begin=np.zeros(8, int)).logits[row]

    reference = beside(others=10, row=3, seed=0)
    np.testing.assert_array_equal(beside(others=11, row=3, seed=1), reference)
    np.testing.assert_array_equal(beside(others=12, row=6, seed=2), reference)
    split = windows.at_random(text()[1:2], np.zeros(1, int), 8, STEPS[8], seed=3)
    alone = Taken(model, target, split, begin=np.zeros(1, int)).logits[0]
    np.testing.assert_allclose(alone, reference, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("platform", "batch", "expected"),
    [("cpu", 64, 4), ("gpu", 1, 4), ("gpu", 8, 6), ("tpu", 8, 6), ("gpu", 64, 9)],
)
def test_chunks_grow_with_the_batch_on_accelerators(platform, batch, expected):
    """In a window of nine bytes."""
    with dispatch.traced_for(platform):
        assert blt._derived_chunk(9, batch) == expected


@pytest.mark.slow
def test_a_run_of_the_global_model_has_as_many_patches_as_a_chunk():
    model = models.model(models.BASE)
    target = BLTTarget(model.module, capacity=32, window=9)
    seen = []

    def extend(state, window):
        with mock.patch.object(BLTTarget, "_run_global", spy):
            return target.extend(model.params, state, window)

    def spy(self, module, state, read, patches):
        seen.append(patches.index.shape)
        return state

    state = jax.eval_shape(lambda: windows.blank(target, model.params, 64))
    with dispatch.traced_for("gpu"):
        jax.eval_shape(extend, state, jax.ShapeDtypeStruct((64, 9), jnp.int32))
    assert seen == [(64, 9)]


@functools.cache
def first_window():
    """A target, and a function of `most` that extends a blank state by a window of eight bytes."""
    model = models.model(models.BASE)
    target = target_for(model, 8)
    state = windows.blank(target, model.params, BATCH)
    window = jnp.asarray(text()[:, :8])
    run = jax.jit(lambda most: target.extend(model.params, state, window, most=most))
    return target, lambda most: jax.device_get(run(np.broadcast_to(np.int32(most), BATCH)))


def test_patches_behind_the_bytes_that_may_be_kept_are_not_run():
    target, extend = first_window()
    whole, trial = extend(8)
    closed = trial.frontier.patches - trial.frontier.patches[:, :1]
    shorter = 0
    for most in range(8):
        logits, trial = extend(most)
        np.testing.assert_array_equal(logits[:, :most], whole[:, :most])
        np.testing.assert_array_equal(trial.ran_global, closed[:, most] > 0)
        assert trial.chunks == -(-closed[:, most].max() // target.chunk)
        shorter += closed[:, most].max() < closed[:, -1].max()
    assert shorter > 0


def test_rows_that_stand_still_run_no_global_pass():
    target, extend = first_window()
    logits, trial = extend(8)
    assert trial.chunks > 0
    assert extend(0)[1].chunks == 0
    alone, trial = extend([0, 8, 0])
    np.testing.assert_array_equal(alone[1], logits[1])
    closed = trial.frontier.patches[1, -1]
    assert trial.chunks == -(-closed // target.chunk)


def test_no_patcher_no_patcher_passes():
    for name in ("base", "stride"):
        model = models.model(models.VARIANTS[name])
        target = target_for(model, 8)
        passes = target.passes(windows.blank(target, model.params, BATCH))
        assert ("patcher_passes" in passes) == (name == "base")


# Windows agree with the parallel pass (test_targets.py), and that with each golden text.
GOLDEN = [exhaustive(name, 8) for name in cases.NAMES if name != "long_patch"]
GOLDEN += [("long_patch", 8), exhaustive("base", 1), exhaustive("gqa_k4", 17)]


@pytest.mark.slow  # the texts themselves: ../models/test_golden.py
@pytest.mark.parametrize(("name", "width"), GOLDEN)
def test_golden_texts_through_windows(name, width):
    case = cases.load(name)
    config, params = checkpoints.read(case.directory, dtype="float32")
    ids = np.concatenate([case.ids, case.continuation]).astype(np.int32)[None]
    length = ids.shape[1]
    target = BLTTarget(BLT(config), capacity=length, window=width, chunk=1 + width // 4)
    begin = np.zeros(1, np.int32)
    split = windows.at_random(ids, begin, width, 3 * length // width + 60, seed=width)
    model = models.Model(target.module, jax.tree.map(jnp.asarray, params))
    taken = Taken(model, target, split)
    logits = taken.logits[0, : len(case.ids)]
    np.testing.assert_allclose(
        logits[case.logit_positions][:, case.logit_columns], case.logits, rtol=0, atol=2e-5
    )
    lengths = np.diff([-1, *np.flatnonzero(taken.closes[0]), length])
    np.testing.assert_array_equal(lengths, case.continuation_patch_lengths)
    greedy = taken.logits[0, len(case.ids) - 1 : -1, vocab.OFFSET :].argmax(-1) + vocab.OFFSET
    np.testing.assert_array_equal(greedy, case.continuation)
