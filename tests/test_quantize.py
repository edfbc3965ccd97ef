"""Models whose weights are int8: how they are read, what they take, and that the laws hold."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bytelax_kernels import native

import bytelax
from bytelax import checkpoints, loading
from bytelax.checkpoints.layout import flatten
from bytelax.decode import Empty, Params
from bytelax.models import narrow
from bytelax.models.narrow import Int8
from bytelax.pods.sharding import MeshConfig
from bytelax.systems import BltSDrafter, LookupDrafter
from bytelax.testing import assert_lossless
from bytelax.training import train_loop
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models
from tests.helpers import setups
from tests.helpers.commands import refused
from tests.helpers.marks import slow


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """The models are so small that their kernels would be widened whole."""
    monkeypatch.setattr(narrow, "_CACHE", 1024)


LOOKUP = LookupDrafter(6, shortest=2, longest=5)


@functools.cache
def int8(config, dtype="float32"):
    return loading.quantized(models.model(config, dtype))


@pytest.mark.parametrize("layout_of", ["orbax", "huggingface"])
@pytest.mark.parametrize("config", [models.BASE, models.BYTE_LM], ids=["blt", "byte lm"])
def test_what_is_read_is_what_is_quantized_in_memory(config, layout_of, tmp_path):
    model = models.model(config)
    checkpoints.write(tmp_path / "m", model.config, model.params, layout=layout_of)
    read = bytelax.load(tmp_path / "m", quantize="int8")
    assert read.quantized and not model.quantized
    jax.tree.map(np.testing.assert_array_equal, read.params, loading.quantized(model).params)
    halved = bytelax.load(tmp_path / "m", quantize="int8", dtype="bfloat16")
    for path, x in flatten(halved.params).items():
        assert x.dtype == ("float32" if path.startswith("patcher") else "bfloat16"), path
        if isinstance(x, Int8):  # from the stored values, not from what bfloat16 leaves of them
            np.testing.assert_array_equal(x.values, flatten(read.params)[path].values)


def test_which_weights_are_int8():
    config = models.replace(models.BASE, hashing={"vocab": 4001})
    model = int8(config)
    weights, full = flatten(model.params), models.model(config)
    found = {path for path, x in weights.items() if isinstance(x, Int8)}
    kernels = {
        path for path in weights if path.endswith("/kernel") and not path.startswith("patcher")
    }
    assert found == kernels | {"encoder/hash_embed/embedding"}
    jax.tree.map(np.testing.assert_array_equal, model.params["patcher"], full.params["patcher"])
    taken = [x for path, x in flatten(full.params).items() if path in found]
    size = sum(x.nbytes for x in jax.tree.leaves([weights[path] for path in found]))
    assert size < 0.35 * sum(x.nbytes for x in taken)  # scales are much of what is so small
    assert model.weights_per_pass == full.weights_per_pass


@pytest.mark.parametrize(
    "config", [models.BYTE_LM, slow(models.BASE), slow(models.VARIANTS["own_embedding"])]
)
def test_predictions_are_those_of_the_rounded_weights(config):
    model = int8(config)
    wide = jax.tree.map(
        lambda x: x.values * x.scale if isinstance(x, Int8) else x,
        model.params,
        is_leaf=narrow.is_int8,
    )
    ids = models.random_text(2, 64)
    meant = bytelax.Model(model.module, wide)
    np.testing.assert_allclose(model.logits(ids), meant.logits(ids), atol=2e-3)
    full = models.model(config)
    assert np.abs(model.logits(ids) - full.logits(ids)).max() > 0.01
    if "patcher" in full.params:
        np.testing.assert_array_equal(model.entropies(ids), full.entropies(ids))
        assert model.patch_lengths(ids[0]) == full.patch_lengths(ids[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "drafter", "dtype"),
    [
        (models.BYTE_LMS["window"], LOOKUP, "float32"),
        (models.BYTE_LMS["window"], LOOKUP, "bfloat16"),
        (models.BASE, BltSDrafter(6), "float32"),
    ],
)
def test_greedy_output_is_that_of_the_empty_draft(config, drafter, dtype):
    model = int8(config, dtype)
    decoding = loops.run(model, drafter)
    loops.assert_same(decoding, loops.run(model, Empty(6)))
    assert 0 < decoding.counts.accepted.sum() < decoding.counts.drafted.sum()


@pytest.mark.exhaustive
def test_the_law_is_that_of_the_int8_target():
    setup = setups.SETUPS["blt-s"]()
    small = loading.quantized(bytelax.Model(setup.target.module, setup.params.target))
    with native.left_out():  # with the compiled kernels it takes ten times as long: see LOG.md
        assert_lossless(setup.method(), Params(small.params))


@pytest.mark.slow
def test_bits_of_large_kernels_are_read_alike():
    """The views that programs take; the weights themselves are the same."""
    model = models.model(models.BYTE_LMS["window"], "bfloat16")
    viewed = bytelax.Model(model.module, narrow.params_as_bits(model.params))
    assert viewed.params["trunk"]["layers_0"]["mlp"]["down"]["kernel"].dtype == jnp.uint16
    decoding = loops.run(viewed, LOOKUP)
    loops.assert_same(decoding, loops.run(viewed, Empty(6)))
    ids = models.random_text(2, 64)
    wide = jax.jit(model.module.apply)({"params": model.params}, jnp.asarray(ids))
    np.testing.assert_allclose(model.logits(ids), wide, atol=0.3)


def test_lines_that_refuse(tmp_path, capsys, monkeypatch):
    model = int8(models.BYTE_LM)
    with pytest.raises(ValueError, match="is int8 already"):
        loading.quantized(model)
    with pytest.raises(ValueError, match="quantize 'int4' is not int8, the only kind there is"):
        loading.quantized(models.model(models.BYTE_LM), "int4")
    with pytest.raises(ValueError, match="decode on one device"):
        bytelax.load("tiny-lm", quantize="int8", mesh=MeshConfig(data=2))
    with pytest.raises(ValueError, match="decode on one device"):
        model.on(jax.sharding.Mesh(np.array(jax.devices()[:1]), ("tensor",)))
    with pytest.raises(checkpoints.CheckpointError, match="int8 model cannot be written"):
        checkpoints.write(tmp_path / "m", model.config, model.params, layout="orbax")
    with pytest.raises(ValueError, match="int8 weights are for decoding"):
        train_loop._trainable(model.params)
    monkeypatch.chdir(tmp_path)
    generate = ["generate", "--model", "tiny-lm", "x", "--quantize"]
    assert "'int4' is not int8" in refused(capsys, *generate, "int4")
    assert "use a mesh or int8" in refused(capsys, *generate, "int8", "--mesh", "data=2")
    convert = ["convert", "--model", "tiny-lm", "--out", "x", "--quantize", "int8"]
    assert "Unrecognized options: --quantize" in refused(capsys, *convert)
