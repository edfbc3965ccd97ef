"""Products with int8 matrices and with the bits of bfloat16 ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models import narrow
from bytelax.models.narrow import Int8

# The suite's own flags would hide copies.
AS_USERS_COMPILE = {"xla_backend_optimization_level": 3}
if jax.__version_info__ < (0, 11):
    AS_USERS_COMPILE["xla_cpu_use_fusion_emitters"] = True


@pytest.fixture
def matrix():
    """With an outlier in one column, and a column of zeros."""
    matrix = np.random.default_rng(0).standard_normal((50, 24), np.float32)
    matrix[3, 5], matrix[:, 7] = 40, 0
    return matrix


def test_values_are_within_half_a_step(matrix):
    x = Int8.of(matrix, (0,))
    assert x.values.dtype == np.int8 and x.scale.shape == (1, 24) and x.dtype == "float32"
    step = np.abs(matrix).max(0) / 127.5
    assert np.all(np.abs(x.values * x.scale - matrix) <= step * 0.5 + 1e-6)
    assert set(np.abs(x.values).max(0)) == {127, 0}


def test_blocks_of_quantization_change_nothing(matrix, monkeypatch):
    whole = Int8.of(matrix, (0,)), Int8.of(matrix, (1,))
    monkeypatch.setattr(narrow, "_HOST", 4 * 24 * 7)
    for before, after in zip(whole, (Int8.of(matrix, (0,)), Int8.of(matrix, (1,))), strict=True):
        np.testing.assert_array_equal(before.values, after.values)
        np.testing.assert_array_equal(before.scale, after.scale)


@pytest.mark.filterwarnings("error")
def test_what_is_not_finite_stays_so(matrix):
    matrix[0, 0], matrix[0, 1] = np.nan, np.inf
    x = Int8.of(matrix, (0,))
    back = x.values * np.where(np.isfinite(x.scale), x.scale, np.nan)
    assert np.isnan(back[:, :2]).all() and np.isfinite(back[:, 2:]).all()


def test_the_same_values_as_qwix(matrix):
    qwix = pytest.importorskip("qwix")
    theirs = qwix.quantize(jnp.asarray(matrix), jnp.int8, channelwise_axes=[1])
    ours = Int8.of(matrix, (0,))
    off = np.abs(np.asarray(theirs.qvalue, int) - ours.values)
    assert off.max() <= 1 and off.mean() < 0.01  # ties, by the last bit of a scale
    there = matrix.any(0)
    np.testing.assert_allclose(ours.scale[:, there], theirs.scale[:, there], rtol=1e-6)


@pytest.mark.parametrize("held", [4 * 24 * 50, 4 * 24 * 7, 1])  # whole, with a rest, row by row
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_blocks_of_the_product(matrix, held, dtype, monkeypatch):
    monkeypatch.setattr(narrow, "_CACHE", held)
    assert narrow.blocks(3, 50, 24) == {4800: 1, 672: 8, 1: 50}[held]
    x = jnp.asarray(np.random.default_rng(1).standard_normal((1, 3, 50)), dtype)
    wide, int8 = np.asarray(x, np.float32), Int8.of(matrix, (0,))
    short = jnp.asarray(matrix, jnp.bfloat16)
    for given, meant in (
        (jax.tree.map(jnp.asarray, int8), int8.values * int8.scale),
        (narrow.as_bits(short), np.asarray(short, np.float32)),
    ):
        found = jax.jit(lambda x, matrix: narrow.product(x, matrix))(x, given)  # traced anew
        assert found.dtype == dtype
        tolerance = 1e-4 if dtype == "float32" else 0.2
        np.testing.assert_allclose(np.asarray(found, np.float32), wide @ meant, atol=tolerance)


@pytest.mark.parametrize("held", [4 * 24 * 50, 4 * 24 * 7])
def test_a_row_does_not_depend_on_its_place_or_on_the_others(matrix, held, monkeypatch):
    monkeypatch.setattr(narrow, "_CACHE", held)
    x = np.random.default_rng(1).standard_normal((9, 50)).astype(np.float32)
    given = jax.tree.map(jnp.asarray, Int8.of(matrix, (0,)))
    product = jax.jit(lambda x: narrow.product(x, given))
    np.testing.assert_array_equal(product(np.roll(x, 4, 0)), np.roll(product(x), 4, 0))
    other = np.where(np.arange(9)[:, None] == 2, x, -3 * x)
    np.testing.assert_array_equal(product(other)[2], product(x)[2])


def test_a_loop_does_not_keep_widened_matrices():
    """XLA:CPU would keep float32 copies of all matrices, for as long as a loop runs."""
    weights = [np.random.default_rng(0).standard_normal((1024, 1024), np.float32)] * 2
    size = weights[0].nbytes

    def program(product, matrices):
        def loop(x, matrices):
            def step(_, x):
                for matrix in matrices:
                    x = x + product(x, matrix)
                return x

            return jax.lax.fori_loop(0, 3, step, x)

        compiled = jax.jit(loop).lower(jnp.ones((1, 5, 1024)), matrices).compile(AS_USERS_COMPILE)
        return compiled.memory_analysis().temp_size_in_bytes

    int8 = [jax.tree.map(jnp.asarray, Int8.of(x, (0,))) for x in weights]
    short = [jnp.asarray(x, jnp.bfloat16) for x in weights]
    assert program(narrow.product, int8) < size / 1.5
    assert program(narrow.product, [narrow.as_bits(x) for x in short]) < size / 1.5
    if jax.__version_info__ < (0, 11):  # what would be without
        assert program(lambda x, m: x @ m.astype(x.dtype), short) > 2 * size
        assert program(lambda x, m: x @ m.values.astype(x.dtype) * m.scale, int8) > 2 * size


def test_a_loop_over_a_bfloat16_table_neither_copies_nor_widens_it():
    """XLA:CPU would convert the whole table to float32, for a handful of rows."""
    table = jax.random.normal(jax.random.key(0), (50_000, 16), jnp.bfloat16)
    params = {"hash_embed": {"embedding": table}}
    viewed = narrow.params_as_bits(params)
    pointer = viewed["hash_embed"]["embedding"].unsafe_buffer_pointer()
    assert pointer == table.unsafe_buffer_pointer()

    def walk(params):
        def step(ids):
            rows = narrow.rows_of(params["hash_embed"]["embedding"], ids)
            return ids + 1 + jnp.abs(rows.sum(1)).astype(jnp.int32)

        ids = jnp.arange(9)
        return jax.lax.while_loop(lambda ids: ids.max() < 1000, step, ids)

    plain = jax.jit(walk).lower(params).compile(AS_USERS_COMPILE)
    program = jax.jit(walk).lower(viewed).compile(AS_USERS_COMPILE)
    np.testing.assert_array_equal(program(viewed), plain(params))
    assert program.memory_analysis().temp_size_in_bytes < 10_000
    if jax.__version_info__ < (0, 11):  # where 0.12 is the oldest, the view can go
        assert plain.memory_analysis().temp_size_in_bytes > table.nbytes


def test_large_kernels_and_tables_are_viewed(monkeypatch):
    params = {
        "large": {"kernel": jnp.ones((1024, 1024), jnp.bfloat16)},
        "small": {"kernel": jnp.ones((8, 8), jnp.bfloat16), "scale": jnp.ones(8, jnp.bfloat16)},
        "table": {"embedding": jnp.ones((8, 8), jnp.bfloat16)},
        "wide": {"kernel": jnp.ones((1024, 1024))},
        "int8": {"kernel": Int8(jnp.ones((1024, 1024), jnp.int8), jnp.ones((1, 1024)), "float32")},
    }
    viewed = narrow.params_as_bits(params)
    kinds = jax.tree.map(lambda x: str(x.dtype), viewed, is_leaf=narrow.is_int8)
    assert kinds["large"]["kernel"] == kinds["table"]["embedding"] == "uint16"
    assert kinds["small"] == {"kernel": "bfloat16", "scale": "bfloat16"}
    assert viewed["wide"]["kernel"] is params["wide"]["kernel"]
    assert viewed["int8"]["kernel"].values is params["int8"]["kernel"].values
