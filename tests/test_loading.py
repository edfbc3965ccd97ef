"""Which model a name means, and what `load` takes and refuses: what does not fit, too."""

import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest
from bytelax_kernels import native

import bytelax
from bytelax import checkpoints, loading
from bytelax.checkpoints import layout, reading
from bytelax.models import presets
from tests.helpers import models_for_tests as models
from tests.helpers.commands import refused


def test_a_file_or_a_folder_of_the_name_of_a_bundled_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bundled = bytelax.load("tiny-lm")
    (tmp_path / "tiny-lm").touch()
    assert bytelax.load("tiny-lm").config == bundled.config
    (tmp_path / "tiny-lm").unlink()
    (tmp_path / "tiny-lm").mkdir()
    assert bytelax.load("tiny-lm").config == bundled.config
    (tmp_path / "tiny-lm" / "config.json").write_text("{}")
    with pytest.raises(
        checkpoints.CheckpointError, match=r"tiny-lm/config\.json has model_type None"
    ):
        bytelax.load("tiny-lm")


def test_a_mesh_as_the_command_line_spells_it():
    mesh = bytelax.load("tiny-draft", mesh="data=2,tensor=1").mesh
    assert mesh == bytelax.load("tiny-draft", mesh=bytelax.MeshConfig(data=2)).mesh
    assert bytelax.MeshConfig.parse(str(bytelax.MeshConfig(fsdp=4))) == bytelax.MeshConfig(fsdp=4)
    for wrong, says in (
        ("date=2", "'date=2' is not AXIS=NUMBER; the axes are data, fsdp, tensor"),
        ("data=2,data=2", "'data=2' is not AXIS=NUMBER"),
        ("", "'' is not AXIS=NUMBER"),
        ("data=0", "the mesh axis data needs at least 1 device"),
    ):
        with pytest.raises(ValueError, match=says):
            bytelax.load("tiny-draft", mesh=wrong)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.dtype(jnp.bfloat16), "bfloat16"])
def test_a_dtype_is_one_or_its_name(dtype):
    params = bytelax.load("tiny-draft", dtype=dtype).params
    assert {x.dtype.name for x in jax.tree.leaves(params)} == {"bfloat16"}


@pytest.mark.parametrize(
    ("kernels", "backend", "least", "dtype"),
    [
        ("avx2", "cpu", 10**4, "bfloat16"),
        ("avx2", "cpu", 10**9, "float32"),  # a small model
        ("avx512bf16", "cpu", 10**9, "bfloat16"),
        (None, "cpu", 10**4, "float32"),
        (None, "gpu", 10**9, "bfloat16"),
    ],
)
def test_the_faster_dtype(kernels, backend, least, dtype, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: kernels is not None)
    monkeypatch.setattr(native, "instructions", lambda: kernels)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(reading, "_NARROW_FROM", least)
    model = loading.model_directory("tiny-draft")
    _, params = checkpoints.read(model, dtype="auto")
    assert {x.dtype.name for x in jax.tree.leaves(params)} == {dtype}


def test_the_faster_dtype_is_that_of_the_model_itself(monkeypatch):
    """A small draft model keeps float32 beside a large target."""
    sizes = [
        sum(math.prod(x.shape) for x in layout.network_kernels(config).values())
        for config in (presets.BYTE_LM_85M, bytelax.load("tiny-draft").config)
    ]
    assert sizes[0] > reading._NARROW_FROM > sizes[1]
    monkeypatch.setattr(native, "available", lambda: True)
    monkeypatch.setattr(native, "instructions", lambda: "avx2")
    assert [
        reading._fastest_dtype(config)
        for config in (presets.BYTE_LM_85M, bytelax.load("tiny-draft").config)
    ] == ["bfloat16", "float32"]


@pytest.mark.parametrize("dtype", ["bf16", "float64", jnp.int8])
def test_what_is_no_dtype_of_weights(dtype):
    with pytest.raises(checkpoints.CheckpointError, match="float32, bfloat16, float16, auto"):
        bytelax.load("tiny-draft", dtype=dtype)


@pytest.mark.parametrize("kind", [np.int64, jnp.int32, np.asarray])
def test_overrides_that_are_scalars_of_arrays(kind):
    config = checkpoints.read_config(loading.model_directory("tiny"), max_bytes=kind(50))
    assert config.max_bytes == 50 and type(config.max_bytes) is int
    rule = bytelax.load_patcher("tiny-draft", patching_stride=kind(3)).rule
    assert rule.stride == 3 and type(rule.stride) is int


# Weights that do not fit in memory are refused before any of them is read


def _free(monkeypatch, size):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: types.SimpleNamespace(available=size))
    monkeypatch.setattr(psutil, "swap_memory", lambda: types.SimpleNamespace(free=0))


def test_a_model_that_does_not_fit(tmp_path, monkeypatch, capsys):
    model = models.model(models.BYTE_LM)
    checkpoints.write(tmp_path / "m", model.config, model.params, layout="orbax")
    monkeypatch.chdir(tmp_path)
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    _free(monkeypatch, weights)
    bytelax.load("m")
    monkeypatch.setattr("orbax.checkpoint.v1.load", lambda *_: pytest.fail("weights were read"))
    _free(monkeypatch, weights - 1)
    told = refused(capsys, "generate", "--model", "m", "x")
    assert told.startswith(f"bytelax: the weights of m take {weights / 1e9:.3g} GB, and ")
    assert told.endswith(" a mesh of several devices, bfloat16 or int8")
    _free(monkeypatch, weights // 2)
    for how in ({}, {"quantize": "int8"}):  # Orbax reads all of it first
        with pytest.raises(ValueError, match="the weights of m take"):
            bytelax.load("m", **how)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    _free(monkeypatch, weights // 2)
    bytelax.load("m", dtype="bfloat16")


def test_a_device_holds_its_shards_only(monkeypatch):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("tensor",))
    spec = jax.sharding.PartitionSpec("tensor")
    params = {"x": jax.ShapeDtypeStruct((100,), np.float32)}
    places = {"x": jax.sharding.NamedSharding(mesh, spec)}
    monkeypatch.setattr(loading, "_free", lambda devices: (200, "memory on a device", 1))
    loading.check_fit("m", params, places)
    with pytest.raises(ValueError, match="take 4e-07 GB, and 2e-07 GB of memory on a device"):
        loading.check_fit("m", params, None)
    monkeypatch.setattr(loading, "_free", lambda devices: (199, "memory on a device", 1))
    with pytest.raises(ValueError, match="use a machine with more, a mesh of more devices or bf"):
        loading.check_fit("m", params, places)  # int8 is for one device
