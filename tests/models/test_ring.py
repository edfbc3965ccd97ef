"""Rings hold the latest positions, each in its slot."""

import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models import ring


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_the_latest_positions_are_read_back(shape):
    slots, width = 8, 3
    held = jnp.zeros((2, slots, *shape))
    for start in range(0, 30, width):
        positions = jnp.stack([start + jnp.arange(width), jnp.full(width, -1)])
        values = jnp.broadcast_to(
            positions.reshape(2, width, *(1,) * len(shape)), (2, width, *shape)
        )
        held = ring.put(held, values, positions)
        newest = jnp.array([start + width - 1, -1])
        for fewer in (slots, 4):
            latest = ring.latest(newest, fewer)
            found = np.asarray(ring.at(held, latest)).reshape(2, fewer, -1)
            np.testing.assert_array_equal(found[0].T, np.broadcast_to(latest[0], found[0].T.shape))
            there = latest[0] > 0
            np.testing.assert_array_equal(latest[0][there] % fewer, jnp.arange(fewer)[there])
            assert latest[0].max() == newest[0] and (~there).sum() <= max(1, fewer - newest[0])
    assert not held[1].any()  # nothing was written at position -1
