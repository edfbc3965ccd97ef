"""Products of few rows run on more where the platform wants it, and nobody sees it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels.dispatch import traced_for

from bytelax.models.layers import Dense

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.normal(size=(9, 4, 3)), jnp.float32)
KERNEL = jnp.asarray(RNG.normal(size=(4, 3, 2, 5)), jnp.float32)


def rows_of_the_product(platform, rows):
    """Their number, after a look at what comes out."""
    dense = Dense((2, 5), ("head", "head_dim", None, "embed"))

    def run(x):
        return dense.apply({"params": {"kernel": KERNEL}}, x)

    wanted = jnp.einsum("rhd,hdgn->rgn", X[:rows], KERNEL)
    with traced_for(platform):
        traced = jax.make_jaxpr(run)(X[:rows])
        np.testing.assert_allclose(jax.jit(run)(X[:rows]), wanted, rtol=1e-5, atol=1e-5)
    (product,) = (eqn for eqn in traced.eqns if eqn.primitive.name == "dot_general")
    return product.outvars[0].aval.size // 10


@pytest.mark.parametrize("rows, least", [(1, 8), (3, 9), (5, 10), (8, 8), (9, 9)])
def test_accelerators_multiply_eight_rows_or_more(rows, least):
    assert rows_of_the_product("tpu", rows) == least


def test_processors_multiply_the_rows_there_are():
    assert rows_of_the_product("cpu", 1) == 1
