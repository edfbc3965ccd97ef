"""Another way through the blocks changes what a step keeps and compiles, not its result."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models.execution import Execution
from bytelax.pods import sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training.objectives import BLTD, executed
from tests.helpers import models_for_tests as models
from tests.helpers import tiny_runs
from tests.helpers.marks import exhaustive, slow
from tests.helpers.tiny_runs import NextByte, batches

KEY = jax.random.key(0)
IDS = jnp.asarray(next(batches("train", 0)))
PLAIN = NextByte()
UNROLLED = Execution()
REMAT, SCAN, BOTH = Execution(remat=True), Execution(scan=True), Execution(remat=True, scan=True)


@functools.cache
def initial():
    return jax.jit(PLAIN.init)(KEY)


def loss(params, execution=UNROLLED, *, objective=PLAIN, ids=IDS):
    return executed(objective, execution).loss(params, ids, KEY)[0]


def kept(execution=UNROLLED):
    """Numbers that wait for the backward pass."""

    def backward(params):
        return jax.vjp(lambda params: loss(params, execution), params)[1]

    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(backward, initial())))


def loops(traced):
    """Lengths of the scans of a traced program."""
    return [e.params["length"] for e in traced.eqns if e.primitive.name == "scan"]


def test_rematerialized_blocks_keep_their_input_only():
    traced = jax.make_jaxpr(lambda params: loss(params, REMAT))(initial())
    blocks = [equation for equation in traced.eqns if "prevent_cse" in equation.params]
    assert len(blocks) == tiny_runs.TRUNK.layers
    assert kept(REMAT) < 0.6 * kept()
    assert kept(BOTH) < 0.8 * kept(SCAN)


def test_a_scanned_stack_is_traced_once():
    traced = jax.make_jaxpr(lambda params: loss(params, SCAN))(initial())
    assert loops(traced) == [tiny_runs.TRUNK.layers]
    products = str(traced).count("dot_general")
    assert products < str(jax.make_jaxpr(loss)(initial())).count("dot_general")


@functools.cache
def gradient():
    return jax.jit(jax.grad(loss))(initial())


ON_A_MESH = MeshConfig(fsdp=2, tensor=2)


@pytest.mark.parametrize(
    ("mesh", "execution"),
    [
        (ON_A_MESH, BOTH),
        slow(None, BOTH),
        exhaustive(None, REMAT),
        exhaustive(ON_A_MESH, SCAN),
    ],
)
def test_the_gradient_is_the_same(execution, mesh):
    execution = dataclasses.replace(execution, mesh=mesh and sharding.make_mesh(mesh))
    other = jax.jit(jax.grad(lambda params: loss(params, execution)))(initial())
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), gradient(), other)


DEEP = models.replace(
    models.VARIANTS["own_embedding"], global_transformer={"layers": 2}, decoder={"layers": 5}
)


@pytest.mark.slow
@pytest.mark.parametrize("cross", ["all", exhaustive("first")])
def test_a_scanned_decoder_reads_its_latents(cross):
    """The joint loss, of clean bytes and blocks."""
    model = models.model(models.replace(DEEP, decoder_cross_attention=cross), scale=1.0)
    ids = jnp.asarray(models.random_text(2, 33))
    joint = functools.partial(loss, objective=BLTD(model.module), ids=ids)

    traced = jax.make_jaxpr(lambda params: joint(params, SCAN))(model.params)
    assert loops(traced)[-2:] == [2, 5] if cross == "all" else loops(traced)[-1:] == [2]
    other = jax.jit(jax.grad(lambda params: joint(params, BOTH)))(model.params)
    plain = jax.jit(jax.grad(joint))(model.params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), plain, other)
