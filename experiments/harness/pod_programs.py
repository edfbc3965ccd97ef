"""The programs that are compiled for pods, and the shapes that they are called with."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from bytelax import Model, architectures, methods
from bytelax.decode import Params, Text
from bytelax.models.blt import BLT
from bytelax.pods import sharding
from bytelax.pods.sharding import Placement
from bytelax.training import optimizer, train_loop, train_state
from bytelax.training.configs import RunConfig
from bytelax.training.objectives import NextByte
from bytelax.training.optimizer import OptimizerConfig
from experiments.harness.decode_program import for_decoding
from experiments.harness.pods import Case


def training_step(case: Case, mesh: Mesh) -> tuple:
    """A step of plain BLT training in bfloat16, blocks scanned and recomputed; its arguments."""
    run = RunConfig(dtype="bfloat16", remat=True, scan=True)
    updates = optimizer.from_config(OptimizerConfig())
    objective = NextByte(BLT(case.config()), max_patches=case.context // 4)

    def fresh(key):
        return train_state.new_state(
            objective.init(key), updates.transformation, objective.trainable
        )

    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes = jax.eval_shape(fresh, key)
    places = train_state.state_shardings(shapes, objective.logical_axes(), mesh)
    rows = case.rows * sharding.batch_shards(mesh)
    ids = jax.ShapeDtypeStruct((rows, case.context + 1), jnp.int32)
    args = (
        _lying(shapes, places),
        _lying(ids, sharding.batch_sharding(mesh)),
        _lying(key, sharding.replicated(mesh)),
    )
    step = train_loop.make_step(objective, updates, run, mesh)
    out = (places, sharding.replicated(mesh))
    return jax.jit(step, donate_argnums=0, out_shardings=out), args


def decoding_round(case: Case, mesh: Mesh) -> tuple:
    """A round of a method, and what it is called with."""
    whole = BLT(case.config())
    params = for_decoding(architectures.shapes(whole))
    places = sharding.shardings(
        params, architectures.logical_axes(whole), mesh, sharding.DECODE_RULES
    )
    params = Params(_lying(params, places))
    placement = Placement.of(mesh, params)
    rows = case.rows * sharding.batch_shards(mesh)
    method, _ = methods.build(case.what, Model(whole, params.target, mesh))
    number = jax.ShapeDtypeStruct((rows,), jnp.int32)
    text = Text(jax.ShapeDtypeStruct((rows, case.context), jnp.int32), number)

    def begin(params, text, budget):
        return method.init(params, text, budget=budget)

    init = functools.partial(sharding.spread, begin, placement, ("params", "rows", "rows"))
    decoding = jax.eval_shape(init, params, text, number)
    round = functools.partial(sharding.spread, method.round, placement, ("params", "rows"))
    return jax.jit(round, donate_argnums=1), (params, _lying(decoding, _states(decoding, mesh)))


def _states(decoding, mesh):
    specs = sharding.state_specs(decoding)
    return jax.tree.map(lambda spec: jax.sharding.NamedSharding(mesh, spec), specs)


def _lying(tree, places):
    if isinstance(places, jax.sharding.Sharding):
        places = jax.tree.map(lambda _: places, tree)
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree, places
    )
