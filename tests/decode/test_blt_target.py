"""The incremental BLT: its patches, its passes, and rows beside one another."""

import functools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import dispatch

from bytelax import checkpoints, vocab
from bytelax.models import patching
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import last_eos_before
from bytelax.targets.blt import BLTTarget
from tests.golden import cases
from tests.helpers import models_for_tests as models
from tests.helpers import windows
from tests.helpers.marks import exhaustive, slow
from tests.helpers.windows import BATCH, LENGTH, NOWHERE, STEPS, TOLERANCE, Taken, target_for, text


@functools.cache
def parallel():
    """The forward pass over the whole text at once."""
    model = models.model(models.BASE)
    forward = jax.jit(functools.partial(model.module.apply, method="forward"))
    return jax.device_get(forward({"params": model.params}, text()))


def test_the_cases_are_hard():
    """Rings wrap, documents end inside, patches are of many lengths, many close in a window."""
    model = models.model(models.BASE)
    ids, forward = text(), parallel()
    assert ((ids == vocab.EOS).any(1)).sum() >= 2
    lengths = np.concatenate([model.patch_lengths(row) for row in ids])
    assert len(set(lengths)) > 4 and lengths.max() > models.BASE.encoder.window
    # More patches in a window of 8 than two chunks hold.
    assert np.lib.stride_tricks.sliding_window_view(forward.closes, 8, axis=1).sum(-1).max() > 4
    top = np.sort(forward.logits)[..., -2:]
    assert np.quantile(np.diff(top), 0.1) < 0.1 * forward.logits.std()


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


def test_a_row_of_count_zero_stands_still():
    model = models.model(models.BASE)
    target = target_for(model, 8)
    begin = windows.at_random(text(), NOWHERE, 8, STEPS[8], 5)
    before = Taken(model, target, windows.Split(begin.windows, begin.counts)).state
    for seed in range(3):
        split = windows.Split(
            np.random.default_rng(seed).integers(0, 260, begin.windows.shape, np.int32),
            np.zeros_like(begin.counts),
        )
        after = Taken(model, target, split, begin=np.asarray(before.length), state=before).state
        for field in ("length", "frontier"):
            jax.tree.map(
                np.testing.assert_array_equal, getattr(after, field), getattr(before, field)
            )
        for name in ("windows", "global_", "patches"):
            np.testing.assert_array_equal(
                getattr(after.passes, name), getattr(before.passes, name), err_msg=name
            )


@pytest.mark.parametrize("width", [slow(1), 8])
def test_passes_are_counted(width):
    model = models.model(models.BASE)
    target = target_for(model, width)
    split = windows.at_random(text(), NOWHERE, width, STEPS[width], 6)
    taken = Taken(model, target, split)
    ran = split.counts > 0
    passes = jax.tree.map(np.asarray, target.passes(taken.state))
    for name in ("decoder_passes", "encoder_passes", "patcher_passes"):
        np.testing.assert_array_equal(passes[name], ran.sum(0))
    np.testing.assert_array_equal(passes["global_passes"], (ran & (taken.closed > 0)).sum(0))
    np.testing.assert_array_equal(passes["patches"], taken.closes.sum(1))
    # The global transformer ran for closed patches only, as few chunks as hold them.
    chunks = -(-taken.closed.max(1) // target.chunk)
    np.testing.assert_array_equal(passes["global_chunks"], [chunks.sum()] * BATCH)
    if width == 1:
        np.testing.assert_array_equal(passes["patches"], passes["global_passes"])


@pytest.mark.parametrize(
    ("platform", "batch", "expected"),
    [("cpu", 64, 4), slow("gpu", 1, 4), slow("gpu", 8, 6), slow("tpu", 8, 6), ("gpu", 64, 9)],
)
def test_chunks_grow_with_the_batch_on_accelerators(platform, batch, expected):
    """In a window of nine bytes; the run that XLA is given has that many patches a row."""
    model = models.model(models.BASE)
    target = BLTTarget(model.module, capacity=32, window=9)
    seen = []

    def extend(state, window):
        with mock.patch.object(BLTTarget, "_run_global", spy):
            return target.extend(model.params, state, window)

    def spy(self, module, state, read, patches):
        seen.append(patches.index.shape)
        return state

    state = jax.eval_shape(lambda: windows.blank(target, model.params, batch))
    with dispatch.traced_for(platform):
        jax.eval_shape(extend, state, jax.ShapeDtypeStruct((batch, 9), jnp.int32))
    assert seen == [(batch, expected)]


@functools.cache
def first_window():
    """A target, and a function of `most` that extends a blank state by a window of eight bytes."""
    model = models.model(models.BASE)
    target = target_for(model, 8)
    state = windows.blank(target, model.params, BATCH)
    window = jnp.asarray(text()[:, :8])
    return target, jax.jit(lambda most: target.extend(model.params, state, window, most=most))


def test_patches_behind_the_bytes_that_may_be_kept_are_not_run():
    target, extend = first_window()
    whole, trial = extend(jnp.full(BATCH, 8))
    closed = trial.frontier.patches - trial.frontier.patches[:, :1]
    shorter = 0
    for most in range(8):
        logits, trial = extend(jnp.full(BATCH, most))
        np.testing.assert_array_equal(logits[:, :most], whole[:, :most])
        np.testing.assert_array_equal(trial.ran_global, closed[:, most] > 0)
        assert trial.chunks == -(-closed[:, most].max() // target.chunk)
        shorter += closed[:, most].max() < closed[:, -1].max()
    assert shorter > 0


def test_rows_that_stand_still_run_no_global_pass():
    target, extend = first_window()
    logits, trial = extend(jnp.full(BATCH, 8))
    assert trial.chunks > 0
    nobody = jnp.zeros(BATCH, int)
    assert extend(nobody)[1].chunks == 0
    alone, trial = extend(nobody.at[1].set(8))
    np.testing.assert_array_equal(alone[1], logits[1])
    closed = trial.frontier.patches[1, -1]
    assert trial.chunks == -(-closed // target.chunk)


def test_no_patcher_no_patcher_passes():
    for name in ("base", "stride"):
        model = models.model(models.VARIANTS[name])
        target = target_for(model, 8)
        passes = target.passes(windows.blank(target, model.params, BATCH))
        assert ("patcher_passes" in passes) == (name == "base")


def test_the_frontier_is_that_of_the_parallel_pass():
    model = models.model(models.BASE)
    target = target_for(model, 8)
    taken = Taken(model, target, windows.at_random(text(), NOWHERE, 8, STEPS[8], 7))
    frontier, forward, ids = taken.state.frontier, parallel(), text()
    positions = np.broadcast_to(np.arange(LENGTH), ids.shape)
    opened = patching.open_patches(
        patching.no_patch(BATCH),
        jnp.asarray(forward.entropies),
        jnp.asarray(positions),
        config=model.config.patching,
    )
    np.testing.assert_array_equal(frontier.open_patch.start, opened.start[:, -1])
    none = jnp.full(BATCH, -1, jnp.int32)
    np.testing.assert_array_equal(
        frontier.last_eos, last_eos_before(jnp.asarray(ids), none, mask=True)[:, -1]
    )
    np.testing.assert_array_equal(frontier.history, ids[:, LENGTH - model.config.hashing.history :])
    for row in range(BATCH):
        ends = np.flatnonzero(forward.closes[row]) + 1
        closed = np.split(ids[row], ends)[: len(ends)]
        eos = [patch for patch, stretch in enumerate(closed) if vocab.EOS in stretch]
        assert frontier.last_eos_patch[row] == max(eos, default=-1)


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
