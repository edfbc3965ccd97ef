"""Byte transformers that others made: their ids, their attention, and what is refused.

The forward pass beside them is NumPy's and reads the files by the names of transformers. Beside
transformers itself: tests/test_live_parity.py.
"""

import json
import math
import warnings

import jax
import numpy as np
import pytest

import bytelax
from bytelax import checkpoints, vocab
from bytelax.checkpoints import CheckpointError, byte_ids
from bytelax.models import block
from bytelax.models.configs import RopeScaling, TransformerConfig
from tests.helpers import models_for_tests as models
from tests.helpers.byte_llamas import SIZES, tensors, write
from tests.helpers.random_models import refusal

TEXT = "naïve bytes\x00\xff".encode()
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WINDOWS = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0}
KINDS = {  # fields of config.json, and the ids that are given
    "raw": ({}, {}),
    "tied": ({"tie_word_embeddings": True}, {}),
    "offset": ({"vocab_size": 262}, {"bytes_at": 3, "bos": 1, "eos": 2}),
    "behind": ({"vocab_size": 258}, {"bytes_at": 0, "bos": 256, "eos": 257}),
    "one for both": ({"vocab_size": 257}, {"bytes_at": 1, "bos": 0, "eos": 0}),
    "a byte in front": ({}, {"bytes_at": 0, "bos": 10}),
    "biases": ({"attention_bias": True}, {}),
    "mistral": ({"model_type": "mistral", "sliding_window": 4, "head_dim": 6}, {}),
    "qwen2": ({"model_type": "qwen2", "sliding_window": 4}, {}),
    "qwen2 windows": ({"model_type": "qwen2", **WINDOWS}, {}),
    "qwen3": ({"model_type": "qwen3", "head_dim": 6}, {}),
    "llama3": ({"rope_scaling": {**LLAMA3, "original_max_position_embeddings": 16}}, {}),
}


ONE_OF_A_KIND = {"tied", "one for both", "biases", "mistral", "qwen3", "llama3"}
WITH_FIELDS = {"biases", "qwen3", "llama3"}  # whose config has what that of others has not


def forward(fields, weights, ids):
    """Logits f64[S, V] of a text, as transformers computes them."""
    heads, kv = fields["num_attention_heads"], fields["num_key_value_heads"]
    width = fields.get("head_dim") or fields["hidden_size"] // heads
    window = fields.get("sliding_window")
    if fields["model_type"].startswith("qwen") and not fields.get("use_sliding_window"):
        window = None
    weights = {name: x.astype(np.float64) for name, x in weights.items()}
    frequency = fields["rope_theta"] ** -(np.arange(0, width, 2) / width)
    scaling = fields.get("rope_scaling", {})
    if scaling.get("factor", 1.0) != 1:
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * math.pi)
        kept = np.clip((turns - 1) / 3, 0, 1)
        frequency = frequency * (kept + (1 - kept) / scaling["factor"])
    phase = np.arange(len(ids))[:, None, None] * np.tile(frequency, 2)

    def norm(x, name):
        mean = (x * x).mean(-1, keepdims=True)
        return x / np.sqrt(mean + fields["rms_norm_eps"]) * weights[f"{name}.weight"]

    def linear(x, name):
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)

    def rotated(x):
        first, second = np.split(x, 2, axis=-1)
        return x * np.cos(phase) + np.concatenate([-second, first], -1) * np.sin(phase)

    distance = np.arange(len(ids))[:, None] - np.arange(len(ids))
    seen = (distance >= 0) & (distance < (window or len(ids)))
    x = weights["model.embed_tokens.weight"][ids]
    for index in range(fields["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        normed, parts = norm(x, f"{layer}.input_layernorm"), []
        for name in "qkv":
            part = linear(normed, f"{layer}.self_attn.{name}_proj").reshape(len(ids), -1, width)
            if f"{layer}.self_attn.{name}_norm.weight" in weights:
                part = norm(part, f"{layer}.self_attn.{name}_norm")
            part = part if name == "v" else rotated(part)
            parts.append(part if name == "q" else np.repeat(part, heads // kv, axis=1))
        scores = np.einsum("qhd,khd->hqk", *parts[:2]) / math.sqrt(width)
        scores = np.where(seen, np.exp(scores), 0)
        scores /= scores.sum(-1, keepdims=True)
        attended = np.einsum("hqk,khd->qhd", scores, parts[2]).reshape(len(ids), -1)
        x = x + linear(attended, f"{layer}.self_attn.o_proj")
        normed = norm(x, f"{layer}.post_attention_layernorm")
        gate = linear(normed, f"{layer}.mlp.gate_proj")
        hidden = gate / (1 + np.exp(-gate)) * linear(normed, f"{layer}.mlp.up_proj")
        x = x + linear(hidden, f"{layer}.mlp.down_proj")
    head = "model.embed_tokens" if fields.get("tie_word_embeddings") else "lm_head"
    return linear(norm(x, "model.norm"), head)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=() if kind in ONE_OF_A_KIND else pytest.mark.slow) for kind in KINDS],
)
def test_logits_and_what_is_written_back(kind, tmp_path):
    more, asked = KINDS[kind]
    fields = SIZES | more
    model = bytelax.load(write(tmp_path / "a", fields), **asked)
    at, first = asked.get("bytes_at", 0), [asked["bos"]] if "bos" in asked else []
    expected = forward(fields, tensors(fields), first + [at + byte for byte in TEXT])
    logits = np.asarray(model.logits(np.asarray([vocab.encode(TEXT)])))[0]
    # Without a BOS the text of transformers begins with its first byte, which nothing predicts.
    assert not first or len(expected) == len(logits)
    found = logits if first else logits[1:]
    np.testing.assert_allclose(found[:, vocab.OFFSET :], expected[:, at : at + 256], atol=2e-5)
    if "eos" in asked:
        np.testing.assert_allclose(found[:, vocab.EOS], expected[:, asked["eos"]], atol=2e-5)
    if not first and kind != "biases":  # of the attention's output, which reaches the logits
        assert not logits[0].any(), "before its first byte all ids are equally likely"
    checkpoints.check_transformers(model.config)
    for layout in ("huggingface", "orbax") if kind in WITH_FIELDS else ("huggingface",):
        checkpoints.write(tmp_path / layout, model.config, model.params, layout=layout)
        again = bytelax.load(tmp_path / layout)
        assert again.config == model.config
        jax.tree.map(np.testing.assert_array_equal, again.params, model.params)


TIED = SIZES | {"tie_word_embeddings": True}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def without(stored, *names):
    return {name: x for name, x in stored.items() if not name.endswith(names)}


@pytest.mark.parametrize(
    ("fields", "stored", "as_if"),
    [
        (TIED, tensors(SIZES), (SIZES, tensors(SIZES))),
        (TIED, without(tensors(SIZES), EMBEDDING), "head"),
        (SIZES, tensors(SIZES | {"attention_bias": True}), "no biases"),
        (SIZES | {"model_type": "mistral", "sliding_window": None, "attention_bias": True},
         tensors(SIZES | {"attention_bias": True}), "no biases"),
    ],
)  # fmt: skip
def test_what_files_store_although_their_config_says_otherwise(fields, stored, as_if, tmp_path):
    """As transformers: a stored output layer counts, one stored alone is both, biases do not."""
    if as_if == "head":
        as_if = (TIED, stored | {EMBEDDING: stored[HEAD]})
    elif as_if == "no biases":
        as_if = (fields, without(stored, ".bias"))
    directory = write(tmp_path / "a", fields, stored=stored)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        logits = bytelax.load(directory).logits(np.asarray([vocab.encode(TEXT)]))[0, 1:]
    expected = forward(*as_if, [*TEXT])
    np.testing.assert_allclose(logits[:, vocab.OFFSET :], expected, atol=2e-5)
    assert len(told) == ("bias" in " ".join(stored))


def trunk_of(directory, **more):
    fields = SIZES | {"max_position_embeddings": 256} | more
    return checkpoints.read_config(write(directory, fields)).trunk


def test_positions_of_the_original_are_also_beside_the_scaling(tmp_path):
    original = {"original_max_position_embeddings": 16}
    inside = trunk_of(tmp_path / "a", rope_scaling=LLAMA3 | original)
    assert trunk_of(tmp_path / "b", rope_scaling=LLAMA3, **original) == inside
    other = LLAMA3 | {"original_max_position_embeddings": 64}
    assert trunk_of(tmp_path / "c", rope_scaling=other, **original) == inside
    assert trunk_of(tmp_path / "d", rope_scaling=other) != inside


def test_other_spellings(tmp_path):
    assert trunk_of(tmp_path / "a", hidden_act="swish") == trunk_of(tmp_path / "b")
    mistral = {"model_type": "mistral", "sliding_window": 4}
    for kind, window in (("sliding", 4), ("full", None)):
        trunk = trunk_of(tmp_path / kind, **mistral, layer_types=[f"{kind}_attention"] * 2)
        assert trunk.window == window


def test_log_probabilities_are_among_the_ids_that_there_are(tmp_path):
    """Not of the rows of zeros for what its vocabulary has not."""
    model = bytelax.load(write(tmp_path / "a", SIZES))
    (told,) = bytelax.generate(model, [TEXT], max_new_bytes=9, logprobs=True).results
    text = TEXT + told.bytes
    law = jax.nn.log_softmax(forward(SIZES, tensors(SIZES), [*text])[len(TEXT) - 1 : -1])
    place = np.arange(9), [*told.bytes]
    np.testing.assert_allclose(told.log_probs, law[place], rtol=0, atol=2e-5)
    (score,) = bytelax.score(model, [text]).documents
    np.testing.assert_allclose(told.log_probs, score.log_probs[-9:], rtol=0, atol=2e-5)


TRUNK = TransformerConfig(dim=64, layers=1, heads=4, head_dim=16, rope_theta=500.0)
RECORDED = [  # what transformers 5.23.0 computes
    (
        {"kind": "linear"},
        [0.25, 0.1149658, 0.05286856, 0.02431231, 0.01118034, 0.005141428, 0.002364354, 0.00108728],
    ),
    (
        {"kind": "llama3"},
        [1.0, 0.4598633, 0.113882, 0.02431231, 0.01118034, 0.005141428, 0.002364354, 0.00108728],
    ),
]


@pytest.mark.parametrize(("scaling", "expected"), RECORDED)
def test_scaled_frequencies(scaling, expected):
    scaled = RopeScaling(factor=4.0, original_positions=64, **scaling)
    config = models.replace(TRUNK, rope_scaling=scaled)
    np.testing.assert_allclose(block.frequencies(config), expected, rtol=1e-5)


HEX = {f"<0x{byte:02X}>": byte + 3 for byte in range(256)}
GPT2 = {byte_ids._printable(byte): 300 - byte for byte in range(256)}
NAMED = {"<s>": 1, "</s>": 2, "<pad>": 0}
IN_FRONT = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
}


def tokenizer(tokens, added=(), **more):
    added = [{"id": index, "content": token, "special": True} for token, index in added]
    return {"tokenizer.json": {"model": {"vocab": tokens}, "added_tokens": added, **more}}


def config_of(**fields):
    return {"tokenizer_config.json": fields}


ADDED = tuple(NAMED.items())
STEPS = {"processors": [{"type": "X"}, IN_FRONT]}
ASKED = config_of(add_bos_token=True, bos_token="<s>")
ASKED_NOT_TO = config_of(add_bos_token=False)
STOP = config_of(eos_token="</s>", bos_token={"content": "<s>"})
FILES = {  # the files, and the ids of byte 0, of BOS and of EOS in them
    "ByT5": (config_of(tokenizer_class="ByT5Tokenizer"), 3, None, 1),
    "hex": (tokenizer(HEX | NAMED) | STOP, 3, None, 2),
    "chr": (tokenizer({chr(byte): byte + 4 for byte in range(256)}, ADDED), 4, None, None),
    "in front": (tokenizer(HEX, ADDED, post_processor=IN_FRONT) | STOP, 3, 1, 2),
    "in front of several steps": (tokenizer(HEX, ADDED, post_processor=STEPS) | STOP, 3, 1, 2),
    "asked for": (tokenizer(HEX, ADDED) | ASKED, 3, 1, None),
    "asked not to": (tokenizer(HEX, ADDED, post_processor=IN_FRONT) | ASKED_NOT_TO, 3, None, None),
}


@pytest.mark.parametrize("name", FILES)
def test_ids_from_tokenizer_files(name, tmp_path):
    files, at, bos, eos = FILES[name]
    fields = SIZES | {"vocab_size": 320, "bos_token_id": 1, "eos_token_id": 2}
    directory = write(tmp_path / "a", fields, files)
    found = byte_ids.find(directory, fields, {})
    assert found == byte_ids.ByteIds(tuple(range(at, at + 256)), bos, eos)
    replaced = byte_ids.find(directory, fields, {"bos": 319, "eos": None})
    assert (replaced.bos, replaced.eos) == (319, None)


def test_bytes_in_any_order(tmp_path):
    fields = SIZES | {"vocab_size": 301}
    directory = write(tmp_path / "a", fields, tokenizer(GPT2))
    assert byte_ids.find(directory, fields, {}).bytes == tuple(range(300, 44, -1))
    expected = forward(fields, tensors(fields), [300 - byte for byte in TEXT])
    logits = bytelax.load(directory).logits(np.asarray([vocab.encode(TEXT)]))[0]
    np.testing.assert_allclose(logits[1:, vocab.OFFSET :], expected[:, 300:44:-1], atol=2e-5)


WORDS = tokenizer(HEX | {"▁the": 259, "▁a": 260, "<pad>": 261})
NO_BYTES = tokenizer({"the": 0, "a": 1})


@pytest.mark.parametrize(
    ("more", "files", "asked", "says"),
    [
        ({"vocab_size": 300}, {}, {}, "is a llama of 300 ids, and no tokenizer file says which"),
        ({"vocab_size": 300}, WORDS, {}, "has 2 tokens that are no bytes, such as '▁the'"),
        ({"vocab_size": 300}, NO_BYTES, {}, "has 2 tokens that are not the 256 bytes, such as 't"),
        ({"vocab_size": 258}, tokenizer(HEX), {}, "ids 3..258 of 258"),
        ({}, {}, {"bytes_at": 1}, "ids 1..256 of 256"),
        ({}, {}, {"bytes_at": -1}, "ids -1..254 of 256"),
        ({}, {}, {"bos": 256}, "ids 0..256 of 256"),
        ({}, {}, {"eos": 10}, "eos 10 is the id of byte 10, which a text may hold"),
        ({"bytelax": {}, "vocab_size": 260}, {}, {"bytes_at": 3, "bos": 1}, "bytes_at, bos cannot"),
    ],
)
def test_ids_that_are_refused(more, files, asked, says, tmp_path):
    directory = write(tmp_path / "a", SIZES | more, files)
    assert says in refusal(checkpoints.read_config, directory, **asked)


def test_fewer_rows_than_ids(tmp_path):
    directory = write(tmp_path / "a", SIZES)
    (directory / "config.json").write_text(json.dumps(SIZES | {"vocab_size": 300}))
    with pytest.raises(CheckpointError, match=r"embed_tokens.weight has shape \(256, 16\), its"):
        checkpoints.read_config(directory, bytes_at=3)


def test_ids_of_a_model_that_bytelax_knows():
    with pytest.raises(CheckpointError, match="eos cannot be given here"):
        bytelax.load("tiny", eos=2)


def test_transformers_has_no_model_of_all_of_it():
    both = models.replace(models.BYTE_LM, trunk={"qk_norm": True, "biases": "qkv"})
    with pytest.raises(CheckpointError, match="cannot express trunk\\.biases='qkv'"):
        checkpoints.check_transformers(both)
