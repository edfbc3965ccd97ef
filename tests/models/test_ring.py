"""Rings hold the latest positions, each in its slot."""

import functools

import jax
import numpy as np
import pytest

from bytelax.models import ring


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_the_latest_positions_are_read_back(shape):
    slots, width = 8, 3
    held = np.zeros((2, slots, *shape), np.float32)

    @functools.partial(jax.jit, static_argnames="fewer")
    def read(held, newest, fewer):
        latest = ring.latest(newest, fewer)
        return latest, ring.at(held, latest)

    put = jax.jit(ring.put)
    for start in range(0, 30, width):
        positions = np.stack([start + np.arange(width), np.full(width, -1)])
        values = np.broadcast_to(
            positions.reshape(2, width, *(1,) * len(shape)), (2, width, *shape)
        )
        held = put(held, values.astype(np.float32), positions)
        newest = np.array([start + width - 1, -1])
        for fewer in (slots, 4):
            latest, found = jax.device_get(read(held, newest, fewer))
            found = found.reshape(2, fewer, -1)
            np.testing.assert_array_equal(found[0].T, np.broadcast_to(latest[0], found[0].T.shape))
            there = latest[0] > 0
            np.testing.assert_array_equal(latest[0][there] % fewer, np.arange(fewer)[there])
            assert latest[0].max() == newest[0] and (~there).sum() <= max(1, fewer - newest[0])
    assert not np.asarray(held)[1].any()  # nothing was written at position -1
