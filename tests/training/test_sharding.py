"""Where parameters lie, and that a step comes out the same wherever they lie."""

import os
import subprocess
import sys

import jax
import models_for_tests
import numpy as np
import pytest
import tiny_runs
from jax.sharding import AbstractMesh, PartitionSpec

from bytelax import loading, sharding
from bytelax.checkpoints import layout
from bytelax.sharding import MeshConfig
from bytelax.training import train_loop

MESH = AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))


def shapes(**names):
    names = {name.replace("__", "/"): shape for name, shape in names.items()}
    return layout.unflatten(
        {name: jax.ShapeDtypeStruct(shape, np.float32) for name, shape in names.items()}
    )


@pytest.mark.parametrize("config", [*models_for_tests.VARIANTS.values(), tiny_runs.CONFIG])
def test_every_parameter_has_logical_axes(config):
    for name, parameter in layout.parameters(config).items():
        axes = sharding.logical_axes(name)
        assert len(axes) == len(parameter.shape), name
        assert {axis for axis in axes if axis} <= set(sharding.TRAIN_RULES)


def test_heads_and_hidden_units_are_split_by_tensor_and_widths_by_fsdp():
    places = sharding.shardings(
        shapes(
            trunk__layers_0__attention__qkv__kernel=(16, 2, 4, 8),
            trunk__layers_0__mlp__down__kernel=(32, 16),
            cross_1__key_value__kernel=(16, 2, 2, 8),
            hash_embed__embedding=(7, 16),
            head__kernel=(16, 261),
            norm__scale=(5,),
        ),
        MESH,
    )
    specs = {name: place.spec for name, place in layout.flatten(places).items()}
    assert specs == {
        "trunk/layers_0/attention/qkv/kernel": PartitionSpec("fsdp", "tensor", None, None),
        "trunk/layers_0/mlp/down/kernel": PartitionSpec("tensor", "fsdp"),
        "cross_1/key_value/kernel": PartitionSpec("fsdp", None, "tensor", None),
        "hash_embed/embedding": PartitionSpec(None, "fsdp"),
        "head/kernel": PartitionSpec("fsdp", None),
        "norm/scale": PartitionSpec(None),
    }


def test_what_does_not_fit_is_told():
    odd = shapes(trunk__layers_0__attention__qkv__kernel=(16, 3, 4, 8))
    with pytest.raises(ValueError, match=r"kv_head of 3 does not divide among the 2 devices"):
        sharding.shardings(odd, MESH)
    with pytest.raises(ValueError, match=r"no logical axes are known for the parameter other/x"):
        sharding.shardings(shapes(other__x=(2,)), MESH)
    with pytest.raises(ValueError, match=r"rules do not say where .* 'byte' goes"):
        sharding.shardings(shapes(head__kernel=(4, 4)), MESH, {"embed": None})
    with pytest.raises(ValueError, match=r"mesh axis 'expert'; the mesh has"):
        sharding.shardings(shapes(norm__scale=(4,)), MESH, {"norm": "expert"})
    with pytest.raises(ValueError, match=r"logical axes are"):
        sharding.shardings(shapes(norm__scale=(4, 4)), MESH)
    many = jax.device_count() + 1
    with pytest.raises(ValueError, match=rf"needs {many} devices, there are {many - 1}"):
        sharding.make_mesh(MeshConfig(data=many))
    with pytest.raises(ValueError, match="axis fsdp needs at least 1 device, got 0"):
        MeshConfig(fsdp=0)


def test_eight_devices_learn_what_one_does(tmp_path):
    script = [sys.executable, tiny_runs.__file__, str(tmp_path / "eight"), "--steps", "6"]
    axes = ["--data", "2", "--fsdp", "2", "--tensor", "2"]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "8"}
    run = subprocess.run([*script, *axes], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    one = train_loop.train(
        tiny_runs.config(steps=6),
        tiny_runs.NextByte(noise=0.1),
        tiny_runs.batches,
        tmp_path / "one",
        report=print,
    )
    many = loading.load(tmp_path / "eight" / "model").params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), one.params, many)
    before = jax.jit(tiny_runs.NextByte().init)(jax.random.key(0))
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), one.params, before)
    assert min(jax.tree.leaves(moved)) > 1e-2
