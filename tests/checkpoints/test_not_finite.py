"""Weights that are NaN or infinite are refused by the name of the tensor, when they are read."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import bytelax
from bytelax import checkpoints
from bytelax.checkpoints import layout, orbax
from bytelax.checkpoints.tensors import check_finite
from tests.helpers import meta_layout
from tests.helpers.marks import slow
from tests.helpers.random_models import (
    META,
    SQUARE,
    WITH_HEADS,
    assert_same,
    random_params,
    refusal,
)

FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
WRONG = (np.nan, -np.nan, np.inf, -np.inf)
# A table that is read in blocks, one of three tensors in a kernel, and the entropy model.
PLACES = {
    "encoder/hash_embed/embedding": ("encoder_hash_tok_embedding.", (211, 15)),
    "decoder/trunk/layers_1/attention/qkv/kernel": (".k_proj.weight", (3, 2, 1, 0)),
    "patcher/norm/scale": ("patcher.norm.weight", (0,)),
}


def spoilt(config, path, at, value=np.nan, dtype=jnp.float32):
    params = layout.flatten(random_params(config, dtype=dtype))
    params[path] = params[path].at[at].set(value)
    return layout.unflatten(params)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_number_is_told_from_what_is_none(dtype):
    info = ml_dtypes.finfo(dtype)
    finite = [0.0, -0.0, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal, 1.0]
    array = np.array(finite * 7, dtype)
    for held in (array, array[::3], array.reshape(7, 8).T, array[:0], array.reshape(7, 8)[:, 2:5]):
        check_finite(held, "it")
    for value in WRONG:
        for at in (0, 17, 55):
            wrong = array.copy()
            wrong[at] = value
            for held in (wrong, wrong.reshape(7, 8).T):
                says = refusal(check_finite, held, "it")
                assert says.startswith(f"it holds NaN or infinite values in {np.dtype(dtype)}; ")


@pytest.mark.parametrize("path", PLACES)
@pytest.mark.parametrize("kind", ["orbax", "huggingface", "meta"])
def test_the_tensor_is_named(kind, path, tmp_path):
    tensor, at = PLACES[path]
    value = WRONG[len(path) % 4]
    meta_layout.write(tmp_path / "a", META, spoilt(META, path, at, value), layout=kind)
    says = refusal(bytelax.load, tmp_path / "a")
    assert says.startswith(f"{tmp_path / 'a'}: the ")
    named = {"orbax": path, "huggingface": tensor, "meta": "norm" if "norm" in path else "model."}
    assert named[kind] in says and "holds NaN or infinite values in float32" in says
    if path.startswith("patcher"):
        assert says == refusal(bytelax.load_patcher, tmp_path / "a")
    else:  # its weights are not read
        bytelax.load_patcher(tmp_path / "a")


@pytest.mark.parametrize("kind", [slow("orbax"), "huggingface"])
def test_also_in_bfloat16_as_int8_and_on_a_mesh(kind, tmp_path):
    path = "decoder/trunk/layers_1/attention/qkv/kernel"
    params = spoilt(SQUARE, path, PLACES[path][1], np.inf, jnp.bfloat16)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout=kind)
    assert "in bfloat16" in refusal(bytelax.load, tmp_path / "a")
    assert "in float32" in refusal(bytelax.load, tmp_path / "a", dtype="float32")
    assert "in bfloat16" in refusal(bytelax.load, tmp_path / "a", quantize="int8")
    mesh = bytelax.MeshConfig(data=2, tensor=2)
    assert "in bfloat16" in refusal(bytelax.load, tmp_path / "a", mesh=mesh)


@pytest.mark.parametrize("kind", ["orbax", "huggingface"])
def test_what_a_narrower_dtype_cannot_hold(kind, tmp_path, recwarn):
    params = spoilt(SQUARE, "decoder/norm/scale", (2,), 1e5)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout=kind)
    says = refusal(checkpoints.read, tmp_path / "a", dtype="float16")
    assert "holds NaN or infinite values in float16" in says and "of wider range" in says
    assert not [w for w in recwarn if "overflow" in str(w.message)]
    checkpoints.read(tmp_path / "a", dtype="bfloat16")


def test_arrays_that_the_host_does_not_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(orbax, "_in_host_memory", lambda x: False)
    checkpoints.write(tmp_path / "a", SQUARE, random_params(SQUARE), layout="orbax")
    assert_same(checkpoints.read(tmp_path / "a")[1], random_params(SQUARE))
    params = spoilt(SQUARE, "decoder/norm/scale", (2,), -np.inf)
    checkpoints.write(tmp_path / "b", SQUARE, params, layout="orbax")
    says = refusal(checkpoints.read, tmp_path / "b")
    assert "the parameter decoder/norm/scale holds NaN or infinite values in float32" in says


@pytest.mark.slow
def test_heads_of_their_own_directory(tmp_path):
    params = random_params(WITH_HEADS)
    leaves, tree = jax.tree.flatten(params["heads"])
    leaves[0] = leaves[0].at[(0,) * leaves[0].ndim].set(np.nan)
    spoilt_heads = jax.tree.unflatten(tree, leaves)
    checkpoints.write_heads(tmp_path, WITH_HEADS, params | {"heads": spoilt_heads})
    says = refusal(checkpoints.read_heads, tmp_path, SQUARE)
    assert says.startswith(f"{tmp_path}: the tensor heads.") and "NaN" in says
