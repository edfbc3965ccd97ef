"""What transformers would compute is computed, or refused by the name of the field that asks it."""

import dataclasses
import json

import pytest

from bytelax import checkpoints
from tests.helpers.random_models import BYTE_LM, SQUARE, random_params, refusal

SCALED = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4}
FULL, SLIDING = "full_attention", "sliding_attention"
ONE_WINDOW = {"model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    for name, config in (("lm", BYTE_LM), ("blt", SQUARE)):
        checkpoints.write(directory / name, config, random_params(config), layout="huggingface")
    return directory


def edited(saved, name, edit):
    """The config that is read once the fields of config.json have been edited."""
    path = saved / name / "config.json"
    before = path.read_text()
    fields = json.loads(before)
    edit(fields)
    path.write_text(json.dumps(fields))
    try:
        return checkpoints.read_config(saved / name)
    finally:
        path.write_text(before)


def changed(saved, name="lm", **changes):
    """As `edited`, with fields set; those of objects within are set one by one."""

    def edit(fields):
        for field, value in changes.items():
            nested = isinstance(value, dict) and isinstance(fields.get(field), dict)
            fields[field] = fields[field] | value if nested else value

    return edited(saved, name, edit)


def test_a_llama_is_read_from_its_fields(saved):
    assert changed(saved) == BYTE_LM
    trunk = changed(saved, rope_parameters={"rope_theta": 1000.0}).trunk
    assert trunk == dataclasses.replace(BYTE_LM.trunk, rope_theta=1000.0)
    assert changed(saved, sliding_window=None).trunk.window is None
    assert changed(saved, sliding_window=5).trunk.window == 5
    assert changed(saved, rms_norm_eps=1e-3).trunk.norm_eps == 1e-3
    assert changed(saved, max_position_embeddings=55).max_bytes == 55
    llama = changed(saved, model_type="llama", sliding_window=None)
    assert llama.trunk == dataclasses.replace(BYTE_LM.trunk, window=None)


def test_heads_and_documents_are_read_from_our_object(saved):
    config = changed(saved, bytelax={"mask_documents": True}, rms_norm_eps=1e-3)
    assert config.mask_documents and config.trunk.norm_eps == 1e-3


def test_what_a_llama_leaves_out_is_what_transformers_takes(saved):
    left_out = ("rope_parameters", "rms_norm_eps", "sliding_window", "max_position_embeddings")

    def edit(fields, model_type):
        fields["model_type"] = model_type
        for name in (*left_out, "head_dim", "bos_token_id"):
            del fields[name]

    mistral = edited(saved, "lm", lambda fields: edit(fields, "mistral"))
    assert mistral.trunk == dataclasses.replace(
        BYTE_LM.trunk, rope_theta=1e4, norm_eps=1e-6, window=4096
    )
    assert mistral.max_bytes == 131_072
    llama = edited(saved, "lm", lambda fields: edit(fields, "llama"))
    assert llama.trunk.window is None and llama.max_bytes == 2048


@pytest.mark.parametrize(
    ("rope", "theta"),
    [
        ({"rope_parameters": None, "rope_theta": 7.0}, 7.0),
        ({"rope_parameters": None, "rope_scaling": {"rope_theta": 8.0}}, 8.0),
        ({"rope_scaling": {"type": "default"}, "rope_theta": 9.0}, 9.0),  # it comes first
        ({"rope_scaling": {}, "rope_theta": 9.0}, 1e4),
    ],
)
@pytest.mark.parametrize("name", ["lm", "blt"])
def test_rotary_bases_in_all_spellings(saved, name, rope, theta):
    rope = rope if name == "lm" else {"patcher_config": rope}
    config = changed(saved, name, **rope)
    assert (config if name == "lm" else config.patcher).trunk.rope_theta == theta


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"rope_parameters": SCALED},
            "rope_parameters: 'dynamic' rotary positions are not supported; default, linear, "
            "llama3 are",
        ),
        ({"rope_scaling": SCALED}, "rope_scaling: 'dynamic' rotary positions are not"),
        ({"rope_scaling": {"type": "longrope"}}, "'longrope' rotary positions are not"),
        ({"rope_scaling": {"type": "linear"}}, "'linear' rotary positions need factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; bytelax computes only"),
        ({"rope_parameters": {FULL: {"rope_theta": 5.0}}}, "bytelax computes only with None"),
        (ONE_WINDOW, "1 of 2 layers have a window, of 7; bytelax computes with one"),
        ({"layer_types": [FULL, SLIDING]}, "1 of 2 layers have a window, of 7; bytelax"),
        ({"layer_types": [FULL]}, f"layer_types must name {FULL} or {SLIDING} for 2 layers"),
        ({"layer_types": ["chunked", FULL]}, f"layer_types must name {FULL} or {SLIDING} for 2"),
        ({"mlp_bias": True}, "mlp_bias is True; bytelax computes only with False"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; bytelax computes only with 'silu'"),
        ({"is_causal": False}, "is_causal is False"),
        ({"per_layer_config": {"0": {"rms_norm_eps": 1.0}}}, "per_layer_config is "),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is "),
        ({"bos_token_id": 256}, "bos_token_id is 256; bytelax computes only with 1"),
        ({"eos_token_id": [2, 14]}, "eos_token_id is [2, 14]; bytelax computes only with 2"),
        ({"model_type": "llama"}, "sliding_window is 7, which a llama does not have"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps is '1e-5' where a number belongs"),
        # of which the tensors tell
        ({"vocab_size": 300}, "has shape (261, 16), its config needs (300, 16)"),
        ({"head_dim": 8}, "has shape (16, 16), its config needs (32, 16)"),
        ({"num_key_value_heads": None}, "k_proj.weight has shape"),
        ({"num_attention_heads": 2}, "q_proj.weight has shape"),
        ({"intermediate_size": 38}, "gate_proj.weight has shape"),
        ({"num_hidden_layers": 1}, "unexpected tensor layers.1."),
    ],
)
def test_fields_of_a_llama_that_we_do_not_compute(saved, change, says):
    assert says in refusal(changed, saved, **change)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"encoder_config": {"rope_scaling": SCALED}}, "rope_scaling: 'dynamic'"),
        ({"global_config": {"hidden_act": "gelu"}}, "global_config: hidden_act is 'gelu'"),
        ({"encoder_config": {"is_causal": False}}, "encoder_config: is_causal is False"),
        ({"is_causal": False}, "is_causal is False"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings is True"),
        ({"per_layer_config": {"0": {}}}, "per_layer_config is "),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantization_config is "),
        ({"patch_size": None}, "patch_size is None where a number belongs"),
    ],
)
def test_fields_of_a_blt_that_we_do_not_compute(saved, change, says):
    assert says in refusal(changed, saved, "blt", **change)


def test_without_our_object_the_ids_are_not_known_to_be_ours(saved):
    says = refusal(changed, saved, bytelax=None)
    assert "is a mistral of 261 ids, and no tokenizer file says which of them are bytes" in says
    assert changed(saved, bytelax={}) == BYTE_LM
