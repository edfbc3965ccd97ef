"""Feeds texts through a target in windows of many kinds, and lays the results out by position."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import vocab
from bytelax.decode import Text
from bytelax.models.blt import BLTConfig
from bytelax.targets.blt import BLTTarget
from bytelax.targets.byte_lm import ByteLMTarget
from tests.helpers import models_for_tests as models

LENGTH = 56
BATCH = 3
STEPS = {1: 3 * LENGTH, 8: LENGTH, 17: LENGTH}  # windows, by their width
TOLERANCE = 1e-5
NOWHERE = np.zeros(BATCH, np.int32)
RAGGED = np.array([1, 13, 30], np.int32)  # bytes in the prompts, the pending one included


@functools.cache
def text():
    return models.random_text(BATCH, LENGTH)


def target_for(model, width, **fields):
    # Prefill windows no wider, or they would size the rings.
    fields = {"prefill_width": min(width, 8), "window": width, "capacity": LENGTH} | fields
    if isinstance(model.config, BLTConfig):
        return BLTTarget(model.module, chunk=2, prefill_chunk=3, **fields)
    return ByteLMTarget(model.module, **fields)


class Split(NamedTuple):
    """A text cut into windows, some of whose bytes are kept."""

    windows: np.ndarray  # i32[N, B, W]
    counts: np.ndarray  # i32[N, B]


def plain(ids, begin, width, steps):
    """One byte a window in padded windows: the reference of the law."""
    positions = np.minimum(begin + np.arange(steps)[:, None], ids.shape[1])  # [N, B]
    counts = (positions < ids.shape[1]).astype(np.int32)
    windows = np.zeros((steps, *ids.shape[:1], width), np.int32)
    pending = np.minimum(positions, ids.shape[1] - 1).T
    windows[:, :, 0] = np.take_along_axis(ids, pending, axis=1).T
    return Split(windows, counts)


def at_random(ids, begin, width, steps, seed):
    """0..width bytes per window; rejected slots hold anything, half of the time the text itself."""
    rng = np.random.default_rng(seed)
    batch, length = ids.shape
    windows = rng.integers(0, vocab.SIZE, (steps, batch, width), np.int32)
    counts = rng.integers(0, width + 1, (steps, batch), np.int32)
    position = np.array(begin)
    for window, count in zip(windows, counts, strict=True):
        count[:] = np.minimum(count, length - position)
        for row in range(batch):
            true = count[row] if rng.random() < 0.5 else width
            here = ids[row, position[row] : position[row] + true]
            window[row, : len(here)] = here
        position += count
    assert (position == length).all(), "too few windows for this text"
    return Split(windows, counts)


@functools.partial(jax.jit, static_argnames="target")
def run(params, state, split, *, target):
    """All windows, one after another.

    Returns the state behind them, and for each window the logits and what `watch` sees.
    """

    def step(state, one):
        logits, trial = target.extend(params, state, one.windows)
        return target.commit(trial, one.counts), (logits, watch(trial))

    return jax.lax.scan(step, state, split)


def watch(trial):
    """Of a BLT, the number of patches closed before and after each byte of the window."""
    return trial.frontier.patches if hasattr(trial, "frontier") else ()


@functools.partial(jax.jit, static_argnames="target")
def prefill(params, ids, length, *, target):
    return target.prefill(params, Text(ids, length))


def blank(target, params, batch):
    """The state before the first byte."""
    text = Text(jnp.zeros((batch, 1), jnp.int32), jnp.ones(batch, jnp.int32))
    with jax.disable_jit():  # nothing to take in, so nothing is worth compiling
        return target.prefill(params, text)


def by_position(values, split, begin, length):
    """From [N, B, W, ...] what was kept, as [B, length, ...]; zero before `begin`."""
    values = np.asarray(values)
    out = np.zeros((values.shape[1], length, *values.shape[3:]), values.dtype)
    position = np.array(begin)
    for window, counts in zip(values, split.counts, strict=True):
        for row, count in enumerate(counts):
            out[row, position[row] : position[row] + count] = window[row, :count]
        position += counts
    return out


class Taken:
    """A text taken in by windows."""

    def __init__(self, model, target, split, *, begin=NOWHERE, state=None):
        if state is None:
            state = blank(target, model.params, split.counts.shape[1])
        length = int((begin + split.counts.sum(0)).max())
        self.state, (logits, patches) = run(model.params, state, split, target=target)
        self.logits = by_position(logits, split, begin, length)
        if isinstance(target, BLTTarget):
            patches = np.asarray(patches)
            self.closed = patches[:, :, -1] - patches[:, :, 0]  # in each window, kept or not
            self.closes = by_position(np.diff(patches) > 0, split, begin, length)

    @property
    def read(self):
        """What is known of the text beside its caches."""
        state = self.state
        known = state.frontier if hasattr(state, "frontier") else state.last_eos
        return self.logits, getattr(self, "closes", ()), state.length, known

    def assert_same(self, other):
        jax.tree.map(np.testing.assert_array_equal, self.read, other.read)
