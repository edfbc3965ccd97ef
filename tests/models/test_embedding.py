"""Gradients of looked-up rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models.byte_lm import ByteLM, ByteLMConfig
from bytelax.models.configs import TransformerConfig
from bytelax.models.execution import rows_of
from bytelax.training.objectives import NextByte
from bytelax.training.train_loop import cast

STACK = TransformerConfig(dim=16, layers=1, heads=2, kv_heads=2, head_dim=8, ffn_dim=32)


def test_a_row_that_is_looked_up_often_gets_the_whole_sum():
    """The transpose of indexing a bfloat16 table stops at 256."""
    ids = jnp.zeros((16, 256), jnp.int32).at[:, ::4].set(1)
    gradient = jax.grad(lambda table: rows_of(table, ids).astype(jnp.float32).sum())
    found = gradient(jnp.ones((3, 2), jnp.bfloat16))
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found.astype(np.float32), [[3072] * 2, [1024] * 2, [0] * 2])


def test_float32_is_as_ever():
    table = jax.random.normal(jax.random.key(0), (7, 4))
    ids = jax.random.randint(jax.random.key(1), (3, 50), 0, 7)
    weight = jax.random.normal(jax.random.key(2), (3, 50, 4))
    by_rows = jax.grad(lambda table: (rows_of(table, ids) * weight).sum())(table)
    by_index = jax.grad(lambda table: (table[ids] * weight).sum())(table)
    np.testing.assert_array_equal(by_rows, by_index)


@pytest.mark.slow  # 10 s
def test_gradients_of_bfloat16_training_are_those_of_float32():
    """16 windows of 2048 bytes, which are few different ones, as those of text are."""
    objective = NextByte(ByteLM(ByteLMConfig(trunk=STACK)))
    params = objective.init(jax.random.key(0))
    text = np.frombuffer(b"the cat sat on the mat. " * 4000, np.uint8)[: 16 * 2049]
    ids = jnp.asarray(text.reshape(16, 2049), jnp.int32) + 4

    @jax.jit
    def gradients(params):
        def loss(params, dtype):
            return objective.loss(cast(params, dtype), ids, jax.random.key(0))[0]

        return [jax.grad(loss)(params, x)["embed"]["embedding"] for x in ("float32", "bfloat16")]

    exact, found = gradients(params)
    assert found.dtype == jnp.float32
    error = jnp.linalg.norm(found - exact) / jnp.linalg.norm(exact)
    assert error < 0.02
