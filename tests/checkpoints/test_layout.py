"""The table of names, against definitions written out by hand."""

import numpy as np
import pytest

from bytelax import architectures
from bytelax.checkpoints import CheckpointError, layout
from tests.helpers.models_for_tests import BYTE_LMS
from tests.helpers.random_models import BYTE_LM, GROUPED, META, OWN, SQUARE, random_params


@pytest.mark.parametrize("config", [SQUARE, GROUPED, META, OWN, BYTE_LM, BYTE_LMS["qwen"]])
def test_the_table_is_the_parameter_tree(config):
    drawn = layout.flatten(architectures.shapes(architectures.module_of(config)))
    expected = {path: x.shape for path, x in drawn.items()}
    assert all(x.dtype == np.float32 for x in drawn.values())
    assert {path: x.shape for path, x in architectures.parameters(config).items()} == expected


def test_query_heads_lie_with_their_key_head():
    params = random_params(GROUPED)
    state = layout.state_dict(GROUPED, params)
    block = "model.local_encoder.layers.1.self_attn."
    q, k, v = (state[f"{block}{x}_proj.weight"].whole() for x in "qkv")
    fused = np.asarray(params["encoder"]["trunk"]["layers_1"]["attention"]["qkv"]["kernel"])
    x = np.random.default_rng(1).standard_normal(16).astype(np.float32)
    queries = (q @ x).reshape(4, 4)  # head, head_dim
    keys, values = ((w @ x).reshape(2, 4) for w in (k, v))
    for head in range(4):  # heads 0 and 1 share key head 0
        np.testing.assert_allclose(
            np.einsum("d,dh->h", x, fused[:, head // 2, head % 2]), queries[head], rtol=1e-5
        )
    np.testing.assert_allclose(np.einsum("d,dkh->kh", x, fused[:, :, 2]), keys, rtol=1e-5)
    np.testing.assert_allclose(np.einsum("d,dkh->kh", x, fused[:, :, 3]), values, rtol=1e-5)


def test_gate_comes_before_up_and_key_before_value():
    params = random_params(SQUARE)
    state = layout.state_dict(SQUARE, params)
    mlp = np.asarray(params["decoder"]["trunk"]["layers_0"]["mlp"]["gate_up"]["kernel"])
    for index, name in enumerate(("gate", "up")):
        stored = state[f"model.local_decoder.layers.0.mlp.{name}_proj.weight"].whole()
        np.testing.assert_array_equal(stored, mlp[:, index].T)
    pair = np.asarray(params["decoder"]["cross_1"]["key_value"]["kernel"])
    for index, name in enumerate(("k", "v")):
        stored = state[f"model.local_decoder.cross_attn_layers.1.{name}_proj.weight"].whole()
        np.testing.assert_array_equal(stored, pair[:, index].reshape(16, 16).T)


def test_projections_back_to_the_residual_stream_are_transposed():
    params = random_params(SQUARE)
    state = layout.state_dict(SQUARE, params)
    out = np.asarray(params["encoder"]["cross"]["out"]["kernel"])
    stored = state["model.local_encoder.cross_attn_layers.0.o_proj.weight"].whole()
    np.testing.assert_array_equal(stored, out.reshape(16, 16).T)
    square = state["model.local_decoder.patch_embedding_projection.weight"].whole()
    np.testing.assert_array_equal(square, np.asarray(params["decoder"]["split"]["kernel"]).T)
    table = state["model.encoder_hash_tok_embedding.weight"].whole()
    np.testing.assert_array_equal(table, params["encoder"]["hash_embed"]["embedding"])


def test_parameters_of_another_model_are_refused():
    params = random_params(SQUARE)
    with pytest.raises(CheckpointError, match="has shape"):
        layout.state_dict(GROUPED, random_params(GROUPED) | {"decoder": params["decoder"]})
    with pytest.raises(CheckpointError, match="patcher/embed/embedding is missing"):
        layout.state_dict(SQUARE, {k: v for k, v in params.items() if k != "patcher"})
    with pytest.raises(CheckpointError, match="unexpected parameter extra/x"):
        layout.state_dict(SQUARE, params | {"extra": {"x": np.zeros(2)}})
