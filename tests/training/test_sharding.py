"""Where parameters lie, and that a step comes out the same wherever they lie."""

import functools
import itertools
import re
from unittest import mock

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from jax.sharding import AbstractMesh, PartitionSpec

from bytelax import architectures
from bytelax.architectures import module_of
from bytelax.checkpoints import layout
from bytelax.models import layers
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM
from bytelax.models.execution import Execution
from bytelax.pods import global_arrays, sharding
from bytelax.pods.sharding import MeshConfig
from bytelax.training import objectives, optimizer, train_loop, train_state
from bytelax.training.configs import RunConfig
from bytelax.training.objectives import BLTD, CorruptionConfig, NextByte
from bytelax.training.optimizer import OptimizerConfig
from bytelax.training.runs import TrainConfig
from tests.helpers import models_for_tests, tiny_runs
from tests.helpers.marks import exhaustive

MESH = AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))


def shape(*sizes):
    return jax.ShapeDtypeStruct(sizes, np.float32)


@pytest.mark.parametrize("config", [*models_for_tests.VARIANTS.values(), tiny_runs.CONFIG])
def test_every_parameter_has_logical_axes(config):
    axes = flatten_dict(module_of(config).logical_axes(), sep="/")
    parameters = architectures.parameters(config)
    assert set(axes) == set(parameters)
    for name, parameter in parameters.items():
        assert len(axes[name]) == len(parameter.shape), name
        assert {axis for axis in axes[name] if axis} <= set(sharding.TRAIN_RULES)


def test_a_parameter_without_logical_axes_is_told():
    with pytest.raises(ValueError, match="the parameter kernel has no logical axes"):
        layers.logical_axes(nn.Dense(2, dtype=np.float32, use_bias=False))


def test_heads_and_hidden_units_are_split_by_tensor_and_widths_by_fsdp():
    model = models_for_tests.model(models_for_tests.PLAIN)
    places = sharding.shardings(model.params, model.module.logical_axes(), MESH)
    specs = {name: place.spec for name, place in layout.flatten(places).items()}
    expected = {
        "decoder/trunk/layers_0/attention/qkv/kernel": PartitionSpec("fsdp", "tensor", None, None),
        "decoder/trunk/layers_0/mlp/down/kernel": PartitionSpec("tensor", "fsdp"),
        "decoder/cross_0/key_value/kernel": PartitionSpec("fsdp", None, "tensor", None),
        "encoder/hash_embed/embedding": PartitionSpec(None, "fsdp"),
        "decoder/head/kernel": PartitionSpec("fsdp", None),
        "decoder/norm/scale": PartitionSpec(None),
    }
    assert expected.items() <= specs.items()


def test_what_does_not_fit_is_told():
    odd = {"qkv": shape(16, 3, 4, 8)}, {"qkv": ("embed", "kv_head", None, "head_dim")}
    with pytest.raises(ValueError, match=r"^qkv of shape .* does not divide evenly on the mesh"):
        sharding.shardings(*odd, MESH)
    with pytest.raises(ValueError, match="a mesh has the axes data, fsdp and tensor, not"):
        sharding.shardings(*odd, AbstractMesh((2,), ("tensor",)))
    many = jax.device_count() + 1
    with pytest.raises(ValueError, match=rf"needs {many} devices, there are {many - 1}"):
        sharding.make_mesh(MeshConfig(data=many))
    with pytest.raises(ValueError, match=r"needs 3 devices, there is 1; JAX_NUM_CPU_DEVICES=3 "):
        sharding.make_mesh(MeshConfig(data=3), jax.devices()[:1])
    with pytest.raises(ValueError, match="axis fsdp needs at least 1 device, got 0"):
        MeshConfig(fsdp=0)


def test_processes_that_are_not_connected_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    with pytest.raises(ValueError, match=r"4 processes that are not connected: .*coordinator auto"):
        sharding.make_mesh(MeshConfig())
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    with pytest.raises(ValueError, match="leaves some of"):
        sharding.make_mesh(MeshConfig())


def chip(index, coords, slice_index=0):
    """What JAX's placement asks of a device of a TPU pod."""
    kind = {"platform": "tpu", "device_kind": "TPU v5", "core_on_chip": 0, "process_index": 0}
    place = {"id": index, "coords": coords, "slice_index": slice_index}
    return mock.Mock(spec=jax.Device, **kind, **place)


def test_an_axis_may_be_a_part_of_the_axis_of_a_torus():
    torus = itertools.product(range(8), repeat=3)
    chips = [chip(*place) for place in enumerate(torus)]
    mesh = sharding.make_mesh(MeshConfig(data=128, tensor=4), chips)
    assert sorted(device.id for device in mesh.devices.flat) == list(range(512))
    for row in mesh.devices.reshape(128, 4):  # those that sum lie in a row
        along = np.array([device.coords for device in row])
        np.testing.assert_array_equal(np.diff(along[:, 0]), 1)
        assert len({tuple(rest) for rest in along[:, 1:]}) == 1
    chips[-1] = chip(511, (7, 7, 7), slice_index=1)
    with pytest.raises(ValueError, match="128 x 1 x 4 spans 2 slices of TPUs, not one"):
        sharding.make_mesh(MeshConfig(data=128, tensor=4), chips)


BLT_D = models_for_tests.replace(
    models_for_tests.PLAIN, decoder_input="embedding", block_size=4, mask_documents=False
)
OBJECTIVES = {
    "byte-lm": NextByte(ByteLM(tiny_runs.CONFIG)),
    "blt-d": BLTD(BLT(BLT_D), corruption=CorruptionConfig(block_sizes=(4,))),
}
MESHES = {
    "data": MeshConfig(data=8),
    "fsdp": MeshConfig(fsdp=8),
    "tensor": MeshConfig(tensor=2),
    "all": MeshConfig(data=2, fsdp=2, tensor=2),
}


def on_a_mesh():
    """A mesh, and a byte transformer with its parameters on it."""
    mesh = sharding.make_mesh(MeshConfig(data=2, fsdp=4))
    model = OBJECTIVES["byte-lm"]
    params = jax.jit(model.init)(jax.random.key(0))
    params = global_arrays.put(params, sharding.shardings(params, model.logical_axes(), mesh))
    return mesh, objectives.executed(model, Execution(mesh=mesh)), params


@pytest.mark.slow
def test_hidden_states_lie_by_rows():
    """Weights split by width, and a batch that every device has, would have them lie by width."""
    mesh, model, params = on_a_mesh()
    ids = global_arrays.put(np.ones((8, 4), np.int32), sharding.replicated(mesh))

    def hidden(params, ids):
        bound = model.module.bind({"params": params})
        return bound.trunk(bound.embed(ids), span=bound.span(ids))[0]

    assert jax.jit(hidden)(params, ids).sharding.spec[0] == ("data", "fsdp")


@pytest.mark.slow
def test_a_device_looks_up_its_width_for_the_rows_of_its_copy_of_the_model():
    mesh, model, params = on_a_mesh()
    ids = global_arrays.put_rows(mesh, np.ones((8, 7), np.int32))

    def loss(params, ids):
        return model.module.apply({"params": params}, ids).sum()

    text = jax.jit(jax.grad(loss)).lower(params, ids).compile().as_text()
    part = tiny_runs.TRUNK.dim // 4
    found = {int(rows) for rows in re.findall(rf"f32\[(\d+),(?:1,)?{part}\]", text)}
    assert 8 // 2 * 7 in found and 8 * 7 not in found


@functools.cache
def after_two_steps(name, mesh):
    """Parameters and metrics. An eps that is not small, or noise would decide on tiny gradients."""
    objective = OBJECTIVES[name]
    settings = OptimizerConfig(steps=4, peak=1e-2, warmup=0, eps=1e-3, accumulate=1)
    config = TrainConfig(optimizer=settings, mesh=MESHES.get(mesh, MeshConfig()), run=RunConfig())
    transformation = optimizer.transformation(settings)
    devices = sharding.make_mesh(config.mesh)

    def fresh(key):
        return train_state.new_state(objective.init(key), transformation, objective.trainable)

    shapes = jax.eval_shape(fresh, jax.random.key(3))
    places = train_state.state_shardings(shapes, objective.logical_axes(), devices)
    state = jax.jit(fresh, out_shardings=places)(jax.random.key(3))
    step = train_loop.make_step(
        objective, optimizer.from_config(config.optimizer), config.run, devices
    )
    step = jax.jit(step, out_shardings=(places, sharding.replicated(devices)))
    rows = models_for_tests.random_text(16, 25).reshape(2, 8, 25)
    key = jax.random.key(1)
    for ids in rows:
        ids = global_arrays.put_rows(devices, ids)
        state, metrics = step(state, ids, key)
    text = step.lower(state, ids, key).compile().as_text()
    return jax.device_get((state.params, metrics)), text


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh", [exhaustive("data"), exhaustive("fsdp"), exhaustive("tensor"), "all"]
)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_steps_on_a_mesh_are_those_of_one_device(name, mesh):
    one, _ = after_two_steps(name, "one")
    many, text = after_two_steps(name, mesh)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5), one, many)
    assert "all-reduce" in text
    if name == "blt-d" and MESHES[mesh].fsdp > 1:
        rows, width = BLT_D.hashing.rows, BLT_D.encoder.dim
        assert f"f32[{rows},{width // MESHES[mesh].fsdp}]" in text
        assert f"f32[{rows},{width}]" not in text  # no device ever holds the whole hash table
