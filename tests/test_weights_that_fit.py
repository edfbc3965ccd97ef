"""A model that does not fit in memory is refused before any of its weights are read."""

import types

import jax
import numpy as np
import psutil
import pytest

import bytelax
from bytelax import checkpoints, cli, loading
from tests.helpers import models_for_tests as models


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
    assert cli.main(["generate", "--model", "m", "x"]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"bytelax: the weights of m take {weights / 1e9:.3g} GB, and ")
    assert told.endswith(" a mesh of several devices, bfloat16 or int8\n")
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
