"""Another way through the blocks changes what a step keeps and compiles, not its result."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_runs
from tiny_runs import NextByte, batches

from bytelax import sharding
from bytelax.sharding import MeshConfig
from bytelax.training import activations
from bytelax.training.stacks import rematerialized, scanned

KEY = jax.random.key(0)
IDS = jnp.asarray(next(batches("train", 0)).ids)
PLAIN = NextByte()
PARAMS = jax.jit(PLAIN.init)(KEY)


def loss(params, *ways):
    with contextlib.ExitStack() as stack:
        for way in ways:
            stack.enter_context(way)
        return PLAIN.loss(params, IDS, KEY)[0]


def kept(*ways):
    """Numbers that wait for the backward pass."""
    _, backward = jax.vjp(lambda params: loss(params, *ways), PARAMS)
    return sum(leaf.size for leaf in jax.tree.leaves(backward))


def test_rematerialized_blocks_keep_their_input_only():
    traced = jax.make_jaxpr(lambda params: loss(params, rematerialized()))(PARAMS)
    blocks = [equation for equation in traced.eqns if "prevent_cse" in equation.params]
    assert len(blocks) == tiny_runs.TRUNK.layers
    assert kept(rematerialized()) < 0.6 * kept()
    assert kept(scanned(), rematerialized()) < 0.8 * kept(scanned())


def test_a_scanned_stack_is_traced_once():
    traced = jax.make_jaxpr(lambda params: loss(params, scanned()))(PARAMS)
    loops = [equation for equation in traced.eqns if equation.primitive.name == "scan"]
    assert [loop.params["length"] for loop in loops] == [tiny_runs.TRUNK.layers]
    products = str(traced).count("dot_general")
    assert products < str(jax.make_jaxpr(loss)(PARAMS)).count("dot_general")


@pytest.mark.parametrize("ways", [[rematerialized], [scanned], [scanned, rematerialized]])
@pytest.mark.parametrize("mesh", [None, MeshConfig(fsdp=2, tensor=2)])
def test_the_gradient_is_the_same(ways, mesh):
    entered = [way() for way in ways] + [activations.placed(mesh and sharding.make_mesh(mesh))]
    other = jax.jit(jax.grad(lambda params: loss(params, *entered)))(PARAMS)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), jax.grad(loss)(PARAMS), other
    )
