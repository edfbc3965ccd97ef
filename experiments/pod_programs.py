"""The programs of `pods.py`, and the shapes that they are called with."""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from pod_cases import Case

from bytelax import Model, methods
from bytelax.decode import Sampling, Stops, Text, round, start
from bytelax.models.blt import BLT
from bytelax.pods import per_device, sharding
from bytelax.pods.per_device import Placement
from bytelax.training import optimizer, train_loop, train_state
from bytelax.training.objectives import NextByte
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.train_loop import RunConfig, TrainConfig


def training_step(case: Case, mesh: Mesh) -> tuple:
    """A step of plain BLT training in bfloat16, blocks scanned and recomputed; its arguments."""
    config = TrainConfig(
        optimizer=OptimizerConfig(),
        mesh=case.mesh,
        run=RunConfig(dtype="bfloat16", remat=True, scan=True),
    )
    objective = NextByte(BLT(case.config()), max_patches=case.context // 4)
    transformation = optimizer.transformation(config.optimizer)

    def fresh(key):
        return train_state.new_state(objective.init(key), transformation, objective.trainable)

    key = jax.eval_shape(lambda: jax.random.key(0))
    shapes = jax.eval_shape(fresh, key)
    places = train_state.state_shardings(shapes, objective.logical_axes(), mesh)
    rows = case.rows * sharding.batch_parts(mesh)
    ids = jax.ShapeDtypeStruct((rows, case.context + 1), jnp.int32)
    args = (
        _lying(shapes, places),
        _lying(ids, sharding.batch_sharding(mesh)),
        _lying(key, sharding.replicated(mesh)),
    )
    step = train_loop.make_step(objective, config, transformation, mesh)
    out = (places, sharding.replicated(mesh))
    return jax.jit(step, donate_argnums=0, out_shardings=out), args


def decoding_round(case: Case, mesh: Mesh) -> tuple:
    """A round of a method, and what it is called with."""
    whole = BLT(case.config())
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    params = jax.eval_shape(whole.init, jax.random.key(0), ids)["params"]
    params = jax.tree_util.tree_map_with_path(_for_decoding, params)
    places = sharding.shardings(params, whole.logical_axes(), mesh, sharding.DECODE_RULES)
    params = {"target": _lying(params, places), "drafter": ()}
    placement = Placement.of(mesh, params)
    rows = case.rows * sharding.batch_parts(mesh)
    law = Sampling.of(rows)
    part = Model(whole, params["target"], mesh).part
    method = methods.build(case.what, part, law, capacity=case.context)
    parts = {"target": method.target, "drafter": method.drafter}
    number = jax.ShapeDtypeStruct((rows,), jnp.int32)
    text = Text(jax.ShapeDtypeStruct((rows, case.context), jnp.int32), number)
    seeds = jax.ShapeDtypeStruct((rows,), jnp.uint32)
    kinds = ("params", "rows", "rows", "rows")

    def begin(params, text, budget, seeds):
        length = method.draft_length
        return start(params, text, budget=budget, seeds=seeds, draft_length=length, **parts)

    decoding = jax.eval_shape(
        functools.partial(per_device.spread, begin, placement, kinds), params, text, number, seeds
    )
    kinds = ("params", "rows", "rows", "same")

    def run(params, decoding, law, stops):
        return round(params, decoding, accept=method.accept, law=law, stops=stops, **parts)

    stops = jax.eval_shape(lambda: Stops.of(()))
    args = (
        params,
        _lying(decoding, _states(decoding, mesh)),
        _lying(law, sharding.batch_sharding(mesh)),
        _lying(stops, sharding.replicated(mesh)),
    )
    program = jax.jit(functools.partial(per_device.spread, run, placement, kinds), donate_argnums=1)
    return program, args


def _states(decoding, mesh):
    specs = sharding.state_specs(decoding)
    return jax.tree.map(lambda spec: jax.sharding.NamedSharding(mesh, spec), specs)


def _lying(tree, places):
    if isinstance(places, jax.sharding.Sharding):
        places = jax.tree.map(lambda _: places, tree)
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), tree, places
    )


def _for_decoding(path, leaf):
    """The entropy model stays in float32."""
    patcher = "patcher" in jax.tree_util.keystr(path)
    return jax.ShapeDtypeStruct(leaf.shape, jnp.float32 if patcher else jnp.bfloat16)
