"""Targets: any split of a text into windows gives the same bits, and those of the parallel pass.

The caches of a target are addressed by position, so nothing depends on how the text came in.
"""

import dataclasses
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
from tests.helpers.marks import exhaustive, slow
from tests.helpers.windows import (
    BATCH,
    LENGTH,
    NOWHERE,
    RAGGED,
    STEPS,
    TOLERANCE,
    Taken,
    target_for,
    text,
)

CONFIGS = models.VARIANTS | {f"lm, {name}": config for name, config in models.BYTE_LMS.items()}


def model_of(name, dtype="float32"):
    return models.model(CONFIGS[name], dtype)


@functools.cache
def forward(name):
    """Of a BLT, the pass over the whole text at once."""
    model = model_of(name)
    run = jax.jit(functools.partial(model.module.apply, method="forward"))
    found = jax.device_get(run({"params": model.params}, text()))
    rule = model.config.patching
    if rule.mode == "entropy":  # none is so near the threshold that rounding could move a patch
        compared = np.diff(found.entropies) if rule.monotonicity else found.entropies
        assert np.abs(compared - rule.threshold).min() > 1e-5
    return found


@functools.cache
def parallel(name):
    """Logits of the pass over the whole text, and of a BLT where patches end."""
    if name not in models.VARIANTS:
        return np.asarray(model_of(name).logits(text())), None
    return forward(name).logits, forward(name).closes


def test_the_cases_are_hard():
    """Rings wrap, documents end inside, patches are of many lengths, many close in a window."""
    ids, whole = text(), forward("base")
    assert ((ids == vocab.EOS).any(1)).sum() >= 2
    lengths = np.concatenate([np.diff(np.flatnonzero(row)) for row in whole.closes])
    assert len(set(lengths)) > 4 and lengths.max() > models.BASE.encoder.window
    # More patches in a window of 8 than two chunks hold.
    assert np.lib.stride_tricks.sliding_window_view(whole.closes, 8, axis=1).sum(-1).max() > 4
    top = np.sort(whole.logits)[..., -2:]
    assert np.quantile(np.diff(top), 0.1) < 0.1 * whole.logits.std()


@pytest.mark.parametrize(
    ("name", "width", "dtype"),
    [
        ("base", 8, "float32"),
        *((f"lm, {name}", 8, "float32") for name in ("window", "documents", "qwen")),
        *(slow(name, 8, "float32") for name in models.VARIANTS if name != "base"),
        slow("base", 1, "bfloat16"),
        slow("lm, window", 1, "float32"),
        slow("lm, window", 8, "bfloat16"),
        *(exhaustive("base", width, "float32") for width in (1, 17)),
        exhaustive("lm, window", 17, "float32"),
        exhaustive("lm, plain", 8, "float32"),
    ],
)
def test_any_split_gives_the_same_bits(name, width, dtype):
    model = model_of(name, dtype)
    target = target_for(model, width)
    reference = Taken(model, target, windows.plain(text(), NOWHERE, width, STEPS[width]))
    assert np.isfinite(reference.logits).all()
    for seed in range(3):
        split = windows.at_random(text(), NOWHERE, width, STEPS[width], seed)
        taken = Taken(model, target, split)
        taken.assert_same(reference)
        passes = target.passes(taken.state)
        np.testing.assert_array_equal(passes["decoder_passes"], (split.counts > 0).sum(0))
        assert ("patcher_passes" in passes) == (getattr(model.config, "patcher", None) is not None)
    if dtype == "float32":
        logits, closes = parallel(name)
        np.testing.assert_allclose(reference.logits, logits, rtol=0, atol=TOLERANCE)
        if closes is not None:
            np.testing.assert_array_equal(reference.closes, closes)
            np.testing.assert_array_equal(reference.state.frontier.patches, closes.sum(1))


@pytest.mark.parametrize(
    ("name", "width", "prefill_width"),
    [("lm, window", 1, 8), ("lm, window", 8, 5), slow("base", 1, 8), slow("base", 8, 5)],
)
def test_prefill_of_ragged_prompts(name, width, prefill_width):
    """Rings shrink or grow behind it; what stands behind a prompt is never read."""
    model = model_of(name)
    target = target_for(model, width, prefill_width=max(width, prefill_width))
    after = np.arange(LENGTH) >= RAGGED[:, None] - 1
    garbage = np.where(after, models.random_text(BATCH, LENGTH, seed=7), text())
    reads = target_for(model, width, prefill_width=prefill_width)
    states = [windows.prefill(model.params, ids, RAGGED, target=reads) for ids in (text(), garbage)]
    assert all((counts == 0).all() for counts in target.passes(states[0]).values())
    splits = [windows.plain(text(), RAGGED - 1, width, STEPS[width])]
    splits += [windows.at_random(text(), RAGGED - 1, width, STEPS[width], seed) for seed in (8, 9)]
    reference, *others = (
        Taken(model, target, split, begin=RAGGED - 1, state=state)
        for split in splits
        for state in states
    )
    expected, _ = parallel(name)
    np.testing.assert_allclose(reference.logits[after], expected[after], rtol=0, atol=TOLERANCE)
    for other in others:
        other.assert_same(reference)


@pytest.mark.parametrize("name", ["base", "lm, window", slow("cut")])
def test_nothing_reads_slots_that_were_not_kept(name):
    model = model_of(name)
    target = target_for(model, 8)
    split = windows.at_random(text(), NOWHERE, 8, STEPS[8], 4)
    steps = np.arange(STEPS[8])[:, None]
    for half in (5, 9):  # windows; those of count 0 keep the shapes
        first = split._replace(counts=np.where(steps < half, split.counts, 0))
        rest = split._replace(counts=np.where(steps < half, 0, split.counts))
        before = Taken(model, target, first).state
        begin = np.asarray(before.length)
        clean = Taken(model, target, rest, begin=begin, state=before)
        poisoned = Taken(model, target, rest, begin=begin, state=poison(model.config, before))
        poisoned.assert_same(clean)
        assert np.isfinite(clean.logits).all() and np.abs(clean.logits[:, -1]).max() > 0


def poison(config, state):
    """The state with large numbers in every slot that no later byte may read."""

    def spoil(cache, kept, window, axis):
        slots = cache.shape[axis]
        newest = np.asarray(kept)[:, None] - 1
        position = newest - (newest - np.arange(slots)) % slots
        reach = slots if window is None else window - 1  # of the byte to come
        dead = (position < 0) | (position < newest + 1 - reach)
        dead = np.expand_dims(dead, [a for a in range(1, cache.ndim) if a != axis])
        return jnp.where(dead, jnp.asarray(1e30, cache.dtype), cache)

    def caches(caches, kept, window):
        return jax.tree.map(lambda x: spoil(x, kept, window, 2), caches)

    if not hasattr(state, "frontier"):
        spoilt = caches(state.caches, state.length, config.trunk.window)
        return dataclasses.replace(state, caches=spoilt)
    patches = state.frontier.patches
    patcher = config.patcher.trunk.window if config.patcher else None
    return dataclasses.replace(
        state,
        patcher=caches(state.patcher, state.length, patcher),
        encoder=caches(state.encoder, state.length, config.encoder.window),
        cross=caches(state.cross, state.length, None),
        global_=caches(state.global_, patches, config.global_transformer.window),
        contexts=jax.tree.map(lambda x: spoil(x, patches, 2, 1), state.contexts),
        decoder=caches(state.decoder, state.length, config.decoder.window),
    )


def test_a_node_of_a_tree_is_read_as_the_end_of_its_branch():
    """Also where the branch is longer than the attention window."""
    model = model_of("lm, window")
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
    model = model_of("lm, window")
    target = target_for(model, 4)
    state = windows.blank(target, model.params, 1)
    with pytest.raises(ValueError, match="a window of 5 bytes does not fit a target of width 4"):
        target.extend(model.params, state, jnp.zeros((1, 5), jnp.int32))


# The state of a BLT


@pytest.mark.parametrize("width", [slow(1), 8])
def test_passes_are_counted(width):
    model = model_of("base")
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


# Windows agree with the parallel pass (above), and that with each golden text.
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
