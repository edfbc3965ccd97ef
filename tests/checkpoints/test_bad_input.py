"""Every bad checkpoint gives one clear line."""

import builtins
import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from bytelax import checkpoints
from tests.helpers import meta_layout
from tests.helpers.random_models import META, random_params, refusal, shard

WEIGHTS = "model.safetensors"
NORM = "model.local_decoder.norm.weight"
GATE = "model.local_decoder.layers.0.mlp.gate_proj.weight"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    directory = tmp_path_factory.mktemp("saved")
    for layout in ("huggingface", "meta", "orbax"):
        meta_layout.write(directory / layout, META, random_params(META), layout=layout)
    return directory


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved / "huggingface", tmp_path / "model")


def message(location, **arguments):
    return refusal(checkpoints.read, location, **arguments)


def change_tensors(model, change):
    """Sets tensors of the file, and leaves out those that are None."""
    stored = safetensors.numpy.load_file(model / WEIGHTS) | change
    stored = {name: x for name, x in stored.items() if x is not None}
    safetensors.numpy.save_file(stored, model / WEIGHTS)


def test_no_directory(tmp_path):
    assert "no directory" in message(tmp_path / "none")
    (tmp_path / "file").touch()
    assert "is a file" in message(tmp_path / "file")
    assert "is empty" in message("")  # and not the current directory


def test_the_hub_needs_its_package(monkeypatch):
    real = builtins.__import__

    def without_hub(name, *args, **kwargs):
        if name == "huggingface_hub":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    assert "pip install huggingface_hub" in message("someone/some-model")


def test_an_empty_directory(tmp_path):
    assert "is empty" in message(tmp_path)


def test_no_config(model):
    (model / "config.json").unlink()
    assert "has no config.json" in message(model)


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_config_is_not_json(model, text):
    (model / "config.json").write_text(text)
    assert "config.json" in message(model)


def test_no_weights(model):
    (model / WEIGHTS).unlink()
    assert f"has no {WEIGHTS}" in message(model)


@pytest.mark.parametrize("size", [0, 3, 100, 10_000, -1])
def test_truncated(model, size):
    content = (model / WEIGHTS).read_bytes()
    (model / WEIGHTS).write_bytes(content[:size])
    assert WEIGHTS in message(model) and "not a whole one; download it again" in message(model)


def test_bytes_behind_the_last_tensor(model):
    with (model / WEIGHTS).open("ab") as file:
        file.write(b"more")
    assert "not a whole one; download it again" in message(model)


@pytest.mark.parametrize(
    "content",
    [b"PK\x03\x04" * 100, b"version https://git-lfs\n", b"\x02" + b"\0" * 7 + b"[]"],
)
def test_not_safetensors(model, content):
    (model / WEIGHTS).write_bytes(content)
    assert "not" in message(model) and "safetensors" in message(model)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({NORM: np.zeros(16, np.int8)}, f"{NORM} is stored as I8"),
        ({NORM: None}, f"the tensor {NORM} is missing"),
        ({"model.bias": np.zeros(3)}, "tensor model.bias"),
        ({NORM: np.zeros(17)}, f"{NORM} has shape (17,), its config needs (16,)"),
        ({GATE: np.zeros((16, 48))}, f"{GATE} has shape (16, 48), its config needs (48, 16)"),
    ],
)
def test_tensors_that_do_not_fit(model, change, says):
    change_tensors(model, change)
    assert says in message(model)


def test_rotary_buffers_are_no_tensors_of_the_model(model):
    change_tensors(model, {"model.local_encoder.rotary_emb.inv_freq": np.zeros(2, np.float32)})
    checkpoints.read(model)


def test_a_missing_shard(model):
    shard(model)
    (model / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in message(model)


def test_an_architecture_that_is_not_read(model):
    """Whatever its weights are called."""
    (model / "config.json").write_text('{"model_type": "gpt2"}')
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    assert "has model_type 'gpt2'; bytelax reads blt" in message(model)


def test_a_bad_index(model):
    shard(model)
    index = model / "model.safetensors.index.json"
    fields = json.loads(index.read_text())
    fields["weight_map"]["nothing"] = "model-00001-of-00002.safetensors"
    index.write_text(json.dumps(fields))
    assert "lacks nothing" in message(model)
    index.write_text("{}")
    assert "the field weight_map is missing" in message(model)


def test_an_unknown_dtype(model):
    assert "float32, bfloat16, float16" in message(model, dtype="int8")


def test_a_broken_orbax_checkpoint(saved, tmp_path):
    model = shutil.copytree(saved / "orbax", tmp_path / "model")
    fields = json.loads((model / "config.json").read_text())
    changes = [
        ({"version": 99}, "format version 99"),
        ({"kind": "cnn"}, "unknown kind 'cnn'"),
        ({"config": fields["config"] | {"block_size": -1}}, "block_size must be at least 0"),
        (
            {"config": fields["config"] | {"vocab_size": 300}},
            "its config needs (300, 16)",
        ),
        ({"config": fields["config"] | {"surprise": 1}}, "unknown field 'surprise'"),
        ({"config": {}}, "missing"),
    ]
    for change, expected in changes:
        (model / "config.json").write_text(json.dumps(fields | change))
        assert expected in message(model)
    wider = json.loads(json.dumps(fields))
    wider["config"]["decoder"]["layers"] = 3
    (model / "config.json").write_text(json.dumps(wider))
    assert "the parameter decoder/" in message(model)
    wider["config"]["decoder"]["layers"] = 1
    (model / "config.json").write_text(json.dumps(wider))
    assert "unexpected parameter decoder/" in message(model)
    (model / "config.json").write_text(json.dumps(fields))
    shutil.rmtree(model / "parameters")
    assert "has no folder parameters" in message(model)
    (model / "parameters").mkdir()
    assert "is not an Orbax checkpoint" in message(model)


def test_a_truncated_orbax_checkpoint(saved, tmp_path):
    model = shutil.copytree(saved / "orbax", tmp_path / "model")
    for file in (model / "parameters").rglob("d/*"):
        file.write_bytes(file.read_bytes()[:100])
    assert "parameters" in message(model)


def test_broken_meta_checkpoints(saved, tmp_path):
    model = shutil.copytree(saved / "meta", tmp_path / "model")
    (model / "entropy_model" / WEIGHTS).unlink()
    assert f"has no {WEIGHTS} or consolidated.pth" in message(model)
    (model / "config.json").write_text('{"args": {"dim_local_encoder": 16}}')
    shutil.copy(model / WEIGHTS, model / "entropy_model" / WEIGHTS)
    assert "is missing" in message(model)
    (model / "config.json").write_text('{"args": null}')
    assert "no model arguments" in message(model)


def test_a_pytorch_file(saved, tmp_path):
    model = shutil.copytree(saved / "meta", tmp_path / "model")
    stored = safetensors.numpy.load_file(model / WEIGHTS)
    (model / WEIGHTS).unlink()
    file = model / "consolidated.pth"
    file.write_bytes(b"nothing")
    try:
        import torch
    except ImportError:
        assert "pip install torch" in message(model)
        return
    assert "is not a PyTorch checkpoint" in message(model)
    halves = {name: torch.from_numpy(x).bfloat16() for name, x in stored.items()}
    torch.save({"model": halves | {"rope.freqs_cis": torch.zeros(2)}}, file)
    config, params = checkpoints.read(model, dtype="float32")
    expected = random_params(META)["decoder"]["head"]["kernel"].astype("bfloat16")
    np.testing.assert_array_equal(params["decoder"]["head"]["kernel"], expected.astype("float32"))
    assert config == META
