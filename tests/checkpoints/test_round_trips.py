"""What is written comes back, bit for bit, through every layout."""

import dataclasses
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from bytelax import checkpoints
from bytelax.checkpoints import CheckpointError
from tests.helpers import meta_layout
from tests.helpers.marks import slow
from tests.helpers.random_models import (
    BYTE_LM,
    GROUPED,
    META,
    OWN,
    SQUARE,
    WITH_HEADS,
    assert_same,
    random_params,
    repatched,
    shard,
    stack,
)


@pytest.mark.parametrize(
    "config",
    [
        *map(slow, (SQUARE, GROUPED, META, OWN)),
        WITH_HEADS,
        BYTE_LM,
    ],
)
@pytest.mark.parametrize("layout", ["orbax", "huggingface"])
def test_any_model_comes_back(config, layout, tmp_path):
    params = random_params(config)
    checkpoints.write(tmp_path / "model", config, params, layout=layout)
    read_config, read_params = checkpoints.read(tmp_path / "model")
    assert read_config == config
    assert_same(read_params, params)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_heads_of_their_own_directory_fit_the_model_they_were_made_for(tmp_path):
    params = random_params(WITH_HEADS)
    checkpoints.write_heads(tmp_path / "heads", WITH_HEADS, params)
    config, heads = checkpoints.read_heads(tmp_path / "heads", SQUARE)
    assert config == WITH_HEADS
    assert_same(heads, params["heads"])
    with pytest.raises(CheckpointError, match="for a model of another shape"):
        checkpoints.read_heads(tmp_path / "heads", OWN)
    stored = tmp_path / "heads" / "config.json"
    stored.write_text(stored.read_text().replace('"count": 1', '"count": 2'))
    with pytest.raises(CheckpointError, match=r"the tensor heads\..* is missing"):
        checkpoints.read_heads(tmp_path / "heads", SQUARE)


@pytest.mark.parametrize("config", [META, META.patcher])
def test_metas_layout_masks_documents_unless_told_otherwise(config, tmp_path):
    params = random_params(config)
    meta_layout.write(tmp_path / "a", config, params, layout="meta")
    read_config, read_params = checkpoints.read(tmp_path / "a")
    assert read_config == config and config.mask_documents
    assert_same(read_params, params)
    assert not checkpoints.read_config(tmp_path / "a", mask_documents=False).mask_documents


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (OWN, "decoder_input='embedding'"),
        (OWN, "patching.mode='stride'"),
        slow(repatched(SQUARE, monotonicity=True), "monotonicity=True"),
        slow(repatched(SQUARE, threshold_add=1.0), "threshold_add=1.0"),
    ],
)
def test_transformers_cannot_express(config, reason, tmp_path):
    with pytest.raises(CheckpointError, match=reason):
        checkpoints.check_transformers(config)
    checkpoints.write(tmp_path / "a", config, random_params(config), layout="huggingface")
    model_type = json.loads((tmp_path / "a" / "config.json").read_text())["model_type"]
    assert model_type.startswith("bytelax-"), "transformers would load it and compute nonsense"


def test_transformers_expresses_the_rest(recwarn):
    checkpoints.check_transformers(SQUARE)
    checkpoints.check_transformers(GROUPED)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="mask_documents"):
        checkpoints.check_transformers(META)
    with pytest.warns(UserWarning, match="max_patch_length"):
        checkpoints.check_transformers(repatched(SQUARE, max_patch_length=4))
    with pytest.warns(UserWarning, match="ignores heads"):
        checkpoints.check_transformers(WITH_HEADS)


@pytest.mark.parametrize("window", [None, 7])
def test_a_byte_transformer_is_a_llama(window, tmp_path):
    trunk = dataclasses.replace(BYTE_LM.trunk, window=window, head_dim=6)
    config = dataclasses.replace(BYTE_LM, trunk=trunk)
    params = random_params(config)
    checkpoints.check_transformers(config)
    checkpoints.write(tmp_path / "a", config, params, layout="huggingface")
    fields = json.loads((tmp_path / "a" / "config.json").read_text())
    assert fields["model_type"] == ("mistral" if window else "llama")
    assert fields.get("sliding_window") == window
    stored = safetensors.numpy.load_file(tmp_path / "a" / "model.safetensors")
    ours = np.asarray(params["trunk"]["layers_1"]["attention"]["qkv"]["kernel"])  # [D, K, G + 2, d]
    theirs = stored["model.layers.1.self_attn.q_proj.weight"].reshape(4, 6, 16)
    # The pairs (0, 1), (2, 3), (4, 5) of a head turn; theirs are (0, 3), (1, 4), (2, 5).
    np.testing.assert_array_equal(theirs[3], ours[:, 1, 1, [0, 2, 4, 1, 3, 5]].T)
    value = stored["model.layers.1.self_attn.v_proj.weight"].reshape(2, 6, 16)
    np.testing.assert_array_equal(value[1], ours[:, 1, 3].T)
    assert_same(checkpoints.read(tmp_path / "a")[1], params)


def test_the_safetensors_package_reads_what_is_written(tmp_path):
    params = random_params(SQUARE, dtype=jnp.bfloat16)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout="huggingface")
    stored = safetensors.numpy.load_file(tmp_path / "a" / "model.safetensors")
    table = stored["model.encoder_hash_tok_embedding.weight"]
    assert table.dtype == jnp.bfloat16
    np.testing.assert_array_equal(table, np.asarray(params["encoder"]["hash_embed"]["embedding"]))


def test_shards(tmp_path):
    params = random_params(SQUARE)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout="huggingface")
    shard(tmp_path / "a")
    assert_same(checkpoints.read(tmp_path / "a")[1], params)


def test_an_encoder_with_cross_attention_in_all_layers_keeps_the_last(tmp_path):
    config = dataclasses.replace(SQUARE, encoder=stack(16, 2, 40, window=9))
    params = random_params(config)
    checkpoints.write(tmp_path / "a", config, params, layout="huggingface")
    stored = safetensors.numpy.load_file(tmp_path / "a" / "model.safetensors")
    first = "model.local_encoder.cross_attn_layers.0."
    for name in [name for name in stored if name.startswith(first)]:
        stored[name.replace(".0.", ".1.", 1)] = stored[name]
        stored[name] = np.zeros_like(stored[name])
    safetensors.numpy.save_file(stored, tmp_path / "a" / "model.safetensors")
    fields = json.loads((tmp_path / "a" / "config.json").read_text())
    fields["encoder_config"]["cross_attn_all_layers"] = True
    (tmp_path / "a" / "config.json").write_text(json.dumps(fields))
    assert_same(checkpoints.read(tmp_path / "a")[1], params)


@pytest.mark.parametrize("layout", [slow("orbax"), "huggingface", "meta"])
@pytest.mark.parametrize("dtype", [slow("float32"), slow("bfloat16"), "float16"])
def test_a_dtype_is_for_all_but_the_patcher(layout, dtype, tmp_path):
    params = random_params(META, dtype=jnp.bfloat16)
    meta_layout.write(tmp_path / "a", META, params, layout=layout)
    _, read = checkpoints.read(tmp_path / "a", dtype=dtype)
    patcher = read.pop("patcher")
    assert {x.dtype for x in jax.tree.leaves(read)} == {jnp.dtype(dtype)}
    assert_same(patcher, jax.tree.map(lambda x: x.astype(jnp.float32), params.pop("patcher")))
    assert_same(read, jax.tree.map(lambda x: x.astype(dtype), params))


@pytest.mark.parametrize("layout", ["orbax", "huggingface", "meta"])
def test_no_dtype_keeps_what_is_stored(layout, tmp_path):
    params = random_params(META, dtype=jnp.bfloat16)
    table = params["encoder"]["hash_embed"]["embedding"]
    params["encoder"]["hash_embed"]["embedding"] = table.astype(jnp.float32)
    meta_layout.write(tmp_path / "a", META, params, layout=layout)
    _, read = checkpoints.read(tmp_path / "a")
    params["patcher"] = jax.tree.map(lambda x: x.astype(jnp.float32), params["patcher"])
    assert_same(read, params)


def test_what_is_stored_in_several_dtypes_is_read_in_the_widest(tmp_path):
    params = random_params(SQUARE, dtype=jnp.bfloat16)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout="huggingface")
    file = tmp_path / "a" / "model.safetensors"
    stored = safetensors.numpy.load_file(file)
    name = "model.local_decoder.layers.0.self_attn.k_proj.weight"
    stored[name] = stored[name].astype(np.float64)
    safetensors.numpy.save_file(stored, file)
    _, read = checkpoints.read(tmp_path / "a")
    kernel = read["decoder"]["trunk"]["layers_0"]["attention"]["qkv"]["kernel"]
    assert kernel.dtype == jnp.float32
    assert read["decoder"]["head"]["kernel"].dtype == jnp.bfloat16


@pytest.mark.parametrize("layout", ["orbax", "huggingface"])
def test_shardings_decide_where_parameters_go(layout, tmp_path):
    params = random_params(SQUARE)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout=layout)
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.P())
    _, read = checkpoints.read(
        tmp_path / "a", shardings=lambda _, tree: jax.tree.map(lambda _: sharding, tree)
    )
    assert all(x.sharding == sharding for x in jax.tree.leaves(read))
    assert_same(read, params)


def test_writing_is_all_or_nothing(tmp_path):
    params = random_params(SQUARE)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(CheckpointError, match="not empty"):
        checkpoints.write(tmp_path / "full", SQUARE, params, layout="orbax")
    (tmp_path / "empty").mkdir()
    checkpoints.write(tmp_path / "empty", SQUARE, params, layout="orbax")
    with pytest.raises(CheckpointError, match="is missing"):
        checkpoints.write(tmp_path / "broken", SQUARE, {}, layout="huggingface")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


@pytest.fixture
def written(tmp_path):
    """A directory with a model, and a function that reads what became of it."""
    old, new = random_params(SQUARE), random_params(SQUARE, seed=1)
    checkpoints.write(tmp_path / "a", SQUARE, old, layout="huggingface")

    def holds(params):
        assert [path.name for path in tmp_path.iterdir()] == ["a"]  # nothing is left beside it
        assert_same(checkpoints.read(tmp_path / "a")[1], params)

    return tmp_path / "a", old, new, holds


@pytest.mark.parametrize("layout", ["orbax", "huggingface"])
def test_overwriting(layout, written):
    directory, _, new, holds = written
    checkpoints.write(directory, SQUARE, new, layout=layout, overwrite=True)
    holds(new)
    assert (directory / "parameters").exists() == (layout == "orbax")
    link = directory.parent / "link"
    link.symlink_to(directory)
    checkpoints.write(link, SQUARE, random_params(SQUARE), layout=layout, overwrite=True)
    assert link.is_symlink()
    link.unlink()
    holds(random_params(SQUARE))


def test_overwriting_is_all_or_nothing(written, monkeypatch):
    directory, old, new, holds = written
    with pytest.raises(CheckpointError, match=r"not empty; .* overwrite the model in it"):
        checkpoints.write(directory, SQUARE, new, layout="orbax")
    with pytest.raises(CheckpointError, match="is missing"):
        checkpoints.write(directory, SQUARE, {}, layout="huggingface", overwrite=True)
    holds(old)
    rename = pathlib.Path.rename

    def interrupted(path, target):
        if path.name.endswith(".partial"):
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.write(directory, SQUARE, new, layout="huggingface", overwrite=True)
    holds(old)
    (directory / "thesis.tex").touch()
    with pytest.raises(CheckpointError, match=r"holds thesis\.tex, which is not part of a model"):
        checkpoints.write(directory, SQUARE, new, layout="huggingface", overwrite=True)
    (directory / "thesis.tex").unlink()
    holds(old)
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoints.write(directory / "config.json", SQUARE, new, layout="orbax", overwrite=True)


@pytest.mark.parametrize("layout", [slow("orbax"), "huggingface"])
def test_a_patcher_that_is_never_asked_is_left_out(layout, tmp_path):
    params = random_params(SQUARE)
    checkpoints.write(tmp_path / "a", SQUARE, params, layout=layout)
    config, read = checkpoints.read(tmp_path / "a", patching_mode="stride", patching_stride=5)
    assert config.patcher is None and config.patching.stride == 5
    rest = {name: part for name, part in params.items() if name != "patcher"}
    assert_same(read, rest)
    idle = repatched(SQUARE, mode="stride")
    checkpoints.write(tmp_path / "b", idle, params, layout=layout)
    assert_same(checkpoints.read(tmp_path / "b")[1], rest)
    with pytest.raises(CheckpointError, match="needs an entropy model"):
        checkpoints.read(tmp_path / "b", patching_mode="entropy")


@pytest.mark.parametrize("config", [SQUARE, BYTE_LM])
def test_int8_files_round_by_half_a_step_at_most_and_once(config, tmp_path):
    params = random_params(config)
    checkpoints.write(tmp_path / "once", config, params, layout="huggingface", int8=True)
    _, once = checkpoints.read(tmp_path / "once")
    checkpoints.write(tmp_path / "twice", config, once, layout="huggingface", int8=True)
    _, twice = checkpoints.read(tmp_path / "twice")
    changed = 0
    for (path, exact), rounded, again in zip(
        jax.tree_util.tree_leaves_with_path(params),
        jax.tree.leaves(once),
        jax.tree.leaves(twice),
        strict=True,
    ):
        exact, rounded = np.asarray(exact, np.float32), np.asarray(rounded, np.float32)
        # A scale belongs to an output, so no error is above half of the matrix's largest step.
        assert np.abs(exact - rounded).max() <= np.abs(exact).max() / 127 / 2 * 1.001
        np.testing.assert_allclose(again, rounded, rtol=1e-6)
        layer = "layers_" in jax.tree_util.keystr(path) and path[-1].key == "kernel"
        patcher = "patcher" in jax.tree_util.keystr(path)
        assert (exact != rounded).any() == (layer and not patcher), path
        changed += layer
    assert changed
    with pytest.raises(CheckpointError, match="holds no int8"):
        checkpoints.write(tmp_path / "orbax", config, params, layout="orbax", int8=True)
