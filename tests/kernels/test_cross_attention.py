"""The kernels of `cross_attention`, emulated, against XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.cross_attention import gpu, read_one, write

from tests.helpers.emulating import EMULATED, on_gpu

pytestmark = list(EMULATED.marks)
BATCH, WINDOW, SLOTS = 2, 3, 7
read, written = (jax.jit(x, static_argnames="implementation") for x in (read_one, write))


def arrays(dtype, *shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.normal(size=shape).astype(dtype)) for shape in shapes]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("dim", [16, 64, 128])
def test_reads_the_vectors_of_one_slot(dtype, dim):
    ring = BATCH, SLOTS, 2, 3, dim
    queries, keys, values = arrays(dtype, (BATCH, WINDOW, 6, dim), ring, ring)
    slots = jnp.array([[0, 6, 6], [3, 1, 0]])
    with on_gpu():
        made = read(queries, keys, values, slots, implementation="gpu")
        last = (np.asarray(x)[1:] for x in (queries[:, 2:], keys, values, slots[:, 2:]))
        alone = read(*last, implementation="gpu")
    exact = [np.asarray(x, np.float64) for x in (queries, keys, values)]
    wanted = read(*exact, slots, implementation="xla")
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(np.asarray(made, np.float64), wanted, atol=tolerance, rtol=tolerance)
    np.testing.assert_array_equal(alone[0, 0], made[1, 2])  # whatever stands beside it


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("vectors", [None, 2], ids=["by head", "vectors of patches"])
def test_writes_what_xla_writes(dtype, vectors):
    heads, dim = 3, 16
    if vectors:
        ring, entry = (BATCH, SLOTS, vectors, heads, dim), (BATCH, WINDOW, vectors, heads, dim)
    else:
        ring, entry = (BATCH, heads, SLOTS, dim), (BATCH, WINDOW, heads, dim)
    keys, values, *both = arrays(dtype, ring, ring, entry, entry)
    new = tuple(both)
    slots = jnp.array([[5, SLOTS, 0], [SLOTS, 1, 2]])  # two are not written
    wanted = written((keys, values), new, slots, implementation="xla")
    with on_gpu():
        made = written((keys, values), new, slots, implementation="gpu")
    jax.tree.map(np.testing.assert_array_equal, tuple(made), tuple(wanted))


def test_what_they_do_not_take():
    queries, keys = arrays("float32", (1, 33, 4, 16), (1, 4, 2, 4, 16))
    slots = jnp.zeros((1, 33), int)
    assert not gpu.takes_read_one((queries, keys, keys, slots))
    assert gpu.takes_read_one((queries[:, :32], keys, keys, slots))
    assert not gpu.takes_write((keys, keys, keys.astype("bfloat16"), keys, slots))
    narrow = keys[..., :3]
    assert not gpu.takes_write((narrow, narrow, narrow, narrow, slots))
