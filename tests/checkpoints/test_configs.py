"""config.json in the spellings found in the wild, and overrides."""

import json

import numpy as np
import pytest

from bytelax import checkpoints
from bytelax.checkpoints import CheckpointError, huggingface, meta
from bytelax.checkpoints.config import known_fields
from bytelax.models.patching import PatchingConfig
from tests.helpers import meta_layout
from tests.helpers.random_models import BYTE_LM, META, SQUARE, random_params

# As the first conversions of the 1B model wrote it: no windows, theta and eps under older names.
OLD = {
    "model_type": "blt",
    "vocab_size": 260,
    "max_position_embeddings": 4096,
    "patch_in_forward": True,
    "realtime_patching": True,
    "patching_mode": "entropy",
    "patching_threshold": 1.25,
    "patching_threshold_add": None,
    "monotonicity": False,
    "patching_device": "cuda",
    "pm_size": 0,
    "cross_attn_k": 2,
    "encoder_hash_byte_group_size": [3, 4, 5],
    "encoder_hash_byte_group_vocab": 500002,
    "encoder_hash_byte_group_nb_functions": 1,
    "patcher_config": {
        "hidden_size": 768,
        "num_hidden_layers": 14,
        "num_attention_heads": 12,
        "num_key_value_heads": None,
        "norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "attn_bias_type": "local_block_causal",
    },
    "encoder_config": {
        "hidden_size": 1280,
        "num_hidden_layers": 1,
        "num_attention_heads": 20,
        "norm_eps": 1e-6,
        "rope_theta": 400000.0,
        "rope_scaling": {"rope_type": "default"},
        "max_position_embeddings": 20000,
    },
    "decoder_config": {"hidden_size": 1280, "num_attention_heads": 20, "intermediate_size": 3584},
    "global_config": {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
}


def read(fields, state=None):
    return huggingface.parse(fields, state or {}, source="config.json")


def test_older_spellings():
    config = read(OLD)
    assert config.encoder.window == config.decoder.window == 512
    assert config.patcher.trunk.window == 512
    assert config.global_transformer.window is None
    assert config.encoder.rope_theta == 400_000 and config.decoder.rope_theta == 500_000
    assert config.patcher.trunk.rope_theta == 10_000
    assert config.encoder.norm_eps == 1e-6 and config.decoder.norm_eps == 1e-5
    assert config.encoder.head_dim == 64 and config.global_transformer.head_dim == 128
    assert config.encoder.kv_heads == 20 and config.global_transformer.kv_heads == 8
    ffn = [c.ffn_dim for c in (config.encoder, config.decoder, config.global_transformer)]
    assert ffn == [3584, 3584, 11008] and config.patcher.trunk.ffn_dim == 2048
    assert config.decoder.layers == 9 and config.global_transformer.layers == 25
    assert config.patching == PatchingConfig(threshold=1.25)
    assert config.hashing.groups == (3, 4, 5)
    assert config.max_bytes == 20_000 and config.patcher.max_bytes == 8192
    assert not config.mask_documents


def test_a_missing_theta_is_that_of_the_module():
    fields = json.loads(json.dumps(OLD))
    for part in ("encoder_config", "patcher_config"):
        del fields[part]["rope_theta"]
    config = read(fields)
    assert config.encoder.rope_theta == 500_000
    assert config.patcher.trunk.rope_theta == 10_000


def test_the_newer_spelling_wins():
    encoder = OLD["encoder_config"] | {
        "rope_parameters": {"rope_type": "default", "rope_theta": 7.0},
        "rms_norm_eps": 1e-3,
    }
    del encoder["rope_scaling"]  # with which transformers ignores `rope_parameters`
    config = read(OLD | {"encoder_config": encoder})
    assert config.encoder.rope_theta == 7 and config.encoder.norm_eps == 1e-3


def test_a_window_of_null_is_no_window():
    patcher = OLD["patcher_config"] | {"sliding_window": None}
    config = read(OLD | {"local_attention_window_len": None, "patcher_config": patcher})
    assert config.encoder.window is config.decoder.window is config.patcher.trunk.window is None


@pytest.mark.parametrize("change", [{"patch_in_forward": False}, {"patching_mode": "byte"}])
def test_without_entropies_a_patch_is_a_byte(change):
    assert read(OLD | change).patching.mode == "byte"


def test_rules_that_transformers_ignores_are_read_when_there():
    change = {"monotonicity": True, "patching_threshold_add": 0.5, "max_patch_length": 8}
    rule = read(OLD | change).patching
    assert rule == PatchingConfig(
        threshold=1.25, monotonicity=True, threshold_add=0.5, max_patch_length=8
    )


def test_an_unsaid_width_is_read_off_the_tensor():
    gate = meta_layout.of_array(np.zeros((777, 1280), np.float32))
    config = read(OLD, {"model.local_encoder.layers.0.mlp.gate_proj.weight": gate})
    assert config.encoder.ffn_dim == 777


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": None}, "model_type None"),
        ({"patching_mode": "space"}, "patching_mode 'space' is not one of entropy, byte"),
        ({"patching_mode": None}, "patching_mode is None where text belongs"),
        ({"encoder_config": None}, "encoder_config is None where an object belongs"),
        ({"cross_attn_k": "2"}, "cross_attn_k is '2' where a whole number belongs"),
        ({"patching_threshold": None}, "patching_threshold is None where a number belongs"),
        ({"encoder_hash_byte_group_vocab": 1 << 30}, "hash vocab"),
        ({"encoder_config": OLD["encoder_config"] | {"num_key_value_heads": 3}}, "do not divide"),
        ({"bytelax": {"decoder_inputs": 1}}, "unknown field 'decoder_inputs'"),
    ],
)
def test_configs_we_cannot_run(change, message):
    with pytest.raises(CheckpointError, match=message):
        read(OLD | change)


def test_overrides(tmp_path):
    checkpoints.write(tmp_path / "a", SQUARE, random_params(SQUARE), layout="orbax")
    config, _ = checkpoints.read(
        tmp_path / "a",
        monotonicity=True,
        patching_threshold=0.5,
        patching_threshold_add=0.25,
        max_patch_length=6,
        mask_documents=True,
        max_bytes=1000,
    )
    assert config.patching == PatchingConfig(
        threshold=0.5, monotonicity=True, threshold_add=0.25, max_patch_length=6
    )
    assert config.mask_documents and config.patcher.mask_documents and config.max_bytes == 1000
    for name, value in {"treshold": 1, "patching_mode": "space", "max_patch_length": 0}.items():
        with pytest.raises(CheckpointError) as error:
            checkpoints.read(tmp_path / "a", **{name: value})
        if name == "treshold":
            assert "monotonicity, patching_threshold, " in str(error.value)


def test_overrides_of_a_byte_transformer(tmp_path):
    checkpoints.write(tmp_path / "a", BYTE_LM, random_params(BYTE_LM), layout="orbax")
    config, _ = checkpoints.read(tmp_path / "a", mask_documents=True, max_bytes=5)
    assert config.mask_documents and config.max_bytes == 5
    with pytest.raises(CheckpointError, match=r"what can be: mask_documents, max_bytes$"):
        checkpoints.read(tmp_path / "a", monotonicity=True)


def meta_directory(directory, change=None, entropy="beneath"):
    """A checkpoint as Meta lays it out: params.json, the entropy model apart."""
    model = directory / "model"
    meta_layout.write(model, META, random_params(META), layout="meta")
    fields = json.loads((model / "config.json").read_text())
    args = fields["args"] | (change or {})
    (model / "config.json").unlink()
    (model / "params.json").write_text(json.dumps({"name": "x", "model": args}))
    if entropy == "beside":
        (model / "entropy_model").rename(directory / "entropy_model")
    return model


@pytest.mark.parametrize("entropy", ["beneath", "beside"])
def test_meta_params_json(entropy, tmp_path):
    change = {"patching_threshold": 9.0, "n_kv_heads": None}
    config, _ = checkpoints.read(meta_directory(tmp_path, change, entropy))
    assert config == META, "the threshold is the entropy model's"


def test_a_meta_entropy_model_alone_is_a_byte_transformer(tmp_path):
    config, _ = checkpoints.read(meta_directory(tmp_path) / "entropy_model")
    assert config == META.patcher


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cross_attn_nheads": 2}, "cross-attention has 2 heads"),
        ({"cross_attn_all_layers_encoder": True, "n_layers_local_encoder": 2}, "several encoder"),
        ({"downsampling_by_pooling": "avg"}, "downsampling_by_pooling is 'avg'"),
        ({"patching_mode": "bpe"}, "patching_mode 'bpe'"),
    ],
)
def test_meta_models_we_cannot_run(change, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        checkpoints.read(meta_directory(tmp_path, change))


def test_meta_with_more_query_than_key_heads_in_the_encoder(tmp_path):
    args = {"dim_local_encoder": 16, "n_layers_local_encoder": 1, "n_heads_local_encoder": 4}
    args |= {name.replace("encoder", "decoder"): value for name, value in args.items()}
    args |= {"dim_global": 32, "n_layers_global": 1, "n_heads_global": 4, "cross_attn_k": 2}
    args |= {"patching_mode": "byte", "cross_attn_nheads": 4}
    args = known_fields(meta._Args, args, "params.json")
    keys = meta_layout.of_array(np.zeros((8, 16), np.float32))
    state = {"model.local_encoder.layers.0.self_attn.k_proj.weight": keys}
    with pytest.raises(CheckpointError, match="its self-attention 4 and 2"):
        meta._blt(args, None, {}, state, "params.json")


def test_meta_without_its_entropy_model(tmp_path):
    model = meta_directory(tmp_path, entropy="beside")
    (tmp_path / "entropy_model").rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="put its folder entropy_model in it"):
        checkpoints.read(model)
