"""Fresh random models of transformers, saved and read back: `make parity`."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import bytelax  # noqa: E402
from bytelax import checkpoints, cli, vocab  # noqa: E402
from bytelax.models.blt import BLT  # noqa: E402
from tests.golden import make_golden  # noqa: E402
from tests.helpers import models_for_tests as models  # noqa: E402

TEXT = "Fresh weights, the same logits: naïve café, 日本語, x = [1, 22, 333]\n\n".encode()
TOLERANCE = 2e-5
NEW_BYTES = 12
LONG = {"original_max_position_embeddings": 16, "factor": 4.0, "rope_theta": 500.0}
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **LONG}
LAYERED = make_golden.Case(layers=2, hash_functions=2)
VARIANTS = {
    "base": {},
    "k4": {"patch_vectors": 4},
    "gqa": {"kv_heads": 1, "global_kv_heads": 2},
    "window": {"window": 6, "patcher_window": 9},
    "scaled positions": {
        "ropes": {  # one of every scaling
            "encoder_config": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
            "decoder_config": LLAMA3 | {"factor": 2.0},
            "global_config": LLAMA3,
            "patcher_config": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        }
    },
}


def build(**fields):
    """A random model that cuts a quarter of the text's bytes."""
    model = make_golden.build(dataclasses.replace(LAYERED, **fields), seed=0)
    entropies = make_golden.entropies_of(model, vocab.encode(TEXT))
    model.config.patching_threshold = make_golden.gap_near(entropies[1:], 0.75)
    return model


@pytest.mark.parametrize("variant", VARIANTS)
@torch.no_grad()
def test_logits_and_greedy_bytes(variant, tmp_path):
    model = build(**VARIANTS[variant])
    model.save_pretrained(tmp_path)
    ids = torch.tensor([vocab.encode(TEXT)])
    generated = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_BYTES,
        do_sample=False,
        use_cache=False,
        suppress_tokens=list(range(vocab.OFFSET)),
    )
    expected = model(generated, use_cache=False).logits[0].numpy()

    config, params = checkpoints.read(tmp_path, dtype="float32")
    apply = jax.jit(BLT(config).apply)
    logits = np.asarray(apply({"params": params}, jnp.asarray(generated.numpy(), jnp.int32))[0])
    np.testing.assert_allclose(logits, expected, rtol=0, atol=TOLERANCE)

    text = np.zeros((1, generated.shape[1]), np.int32)  # what follows a position does not matter
    text[:, : ids.shape[1]] = ids
    for end in range(ids.shape[1], text.shape[1]):
        last = apply({"params": params}, jnp.asarray(text))[0, end - 1, vocab.OFFSET :]
        text[0, end] = int(last.argmax()) + vocab.OFFSET
    np.testing.assert_array_equal(text[0], generated[0])


@torch.no_grad()
def test_scores_and_entropies(tmp_path):
    """The likelihood among bytes and EOS, and the patches, of texts in one batch."""
    model = build()
    model.save_pretrained(tmp_path)
    texts = [TEXT, TEXT[20:45]]
    scores = bytelax.score(bytelax.load(tmp_path), texts)
    cuts = bytelax.patches(bytelax.load_patcher(tmp_path), texts)
    for text, score, cut in zip(texts, scores.documents, cuts, strict=True):
        ids = torch.tensor([vocab.encode(text)])
        logits = model(ids, use_cache=False).logits[0, :-1]
        logits[:, [vocab.BOE, vocab.BOS, vocab.MASK]] = -torch.inf
        expected = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0]
        np.testing.assert_allclose(score.log_probs, expected.numpy(), rtol=0, atol=TOLERANCE)
        entropies, *_ = model.model.patcher(ids)
        np.testing.assert_allclose(cut.entropies, entropies[0, :-1].numpy(), rtol=0, atol=TOLERANCE)
        high = np.flatnonzero(entropies[0, 1:-1].numpy() > model.config.patching_threshold) + 1
        assert cut.starts.tolist() == [0, *high]


# Kinds of checkpoints that others make: class, fields of its config, and which ids are bytes. The
# first byte's id, BOS and EOS are given to `load`, unless a tokenizer's files say them.
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 512,
}
FOREIGN = {
    "raw": ("Llama", {"vocab_size": 256, "num_key_value_heads": 2}, {}),
    "tied": ("Llama", {"vocab_size": 256, "tie_word_embeddings": True}, {}),
    "offset": ("Llama", {"vocab_size": 300}, {"bytes_at": 3, "bos": 1, "eos": 2}),
    "behind": ("Llama", {"vocab_size": 259}, {"bytes_at": 0, "bos": 257, "eos": 258}),
    "a byte for a BOS": ("Llama", {"vocab_size": 256}, {"bytes_at": 0, "bos": 10}),
    "biases": ("Llama", {"vocab_size": 256, "attention_bias": True}, {}),
    "linear": (
        "Llama",
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
        {},
    ),
    "llama3": ("Llama", {"rope_parameters": LLAMA3}, {}),
    "mistral": (
        "Mistral",
        {"sliding_window": 6, "num_key_value_heads": 2, "head_dim": 12},
        {"bytes_at": 0},
    ),
    "qwen2": ("Qwen2", {"num_key_value_heads": 1, "tie_word_embeddings": True}, {}),
    "qwen2 windows": (
        "Qwen2",
        {
            "num_key_value_heads": 2,
            "use_sliding_window": True,
            "sliding_window": 7,
            "max_window_layers": 0,
        },
        {},
    ),
    "qwen3": (
        "Qwen3",
        {"head_dim": 12, "num_key_value_heads": 2, "vocab_size": 264},
        {"bytes_at": 8, "bos": 1},
    ),
    "qwen3 biases": (
        "Qwen3",
        {"head_dim": 10, "attention_bias": True, "num_key_value_heads": 4},
        {},
    ),
}


def foreign(kind, fields, seed=0):
    """A random model of transformers, loud enough that every part is heard."""
    config = getattr(transformers, f"{kind}Config")(**{"vocab_size": 256, **SIZES, **fields})
    torch.manual_seed(seed)
    model = getattr(transformers, f"{kind}ForCausalLM")._from_config(
        config, attn_implementation="eager"
    )
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.normal_(1, 0.25)
        elif name.endswith("bias"):
            weight.normal_(0, 0.5)
        else:
            weight.normal_(0, 0.3 if "embed" in name else weight.shape[1] ** -0.5)
    return model.float().eval()


def theirs(text, asked):
    """The ids of bytes as transformers sees them."""
    first = [asked["bos"]] if "bos" in asked else []
    return torch.tensor([first + [byte + asked.get("bytes_at", 0) for byte in text]])


@pytest.mark.parametrize("name", FOREIGN)
@torch.no_grad()
def test_llamas_from_elsewhere(name, tmp_path):
    """Logits, greedy text, and what is written back, of models that bytelax did not make."""
    kind, fields, asked = FOREIGN[name]
    model = foreign(kind, fields)
    model.save_pretrained(tmp_path / "a")
    ours, at = bytelax.load(tmp_path / "a", **asked), asked.get("bytes_at", 0)
    ids = theirs(TEXT, asked)
    expected = model(ids, use_cache=False).logits[0].numpy()
    found = ours.logits(np.asarray([vocab.encode(TEXT)]))[0]
    without = "bos" not in asked
    np.testing.assert_allclose(
        found[without:, vocab.OFFSET :], expected[:, at : at + 256], rtol=0, atol=TOLERANCE
    )
    if without and not fields.get("attention_bias"):
        assert not found[0].any(), "before the first byte all are equally likely"
    if "eos" in asked:
        np.testing.assert_allclose(
            found[:, vocab.EOS], expected[:, asked["eos"]], rtol=0, atol=TOLERANCE
        )

    emitted = {*range(at, at + 256)} | {asked[x] for x in ("eos",) if x in asked}
    generated = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW_BYTES,
        do_sample=False,
        eos_token_id=asked.get("eos"),
        suppress_tokens=sorted({*range(model.config.vocab_size)} - emitted) or None,
    )[0, ids.shape[1] :]
    out = bytelax.generate(ours, [TEXT], max_new_bytes=NEW_BYTES)
    new = [x - at for x in generated.tolist() if x != asked.get("eos")]
    assert out.bytes[0] == bytes(new)

    checkpoints.check_transformers(ours.config)
    checkpoints.write(tmp_path / "b", ours.config, ours.params, layout="huggingface")
    again = bytelax.load(tmp_path / "b")
    assert again.config == ours.config
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)
    back = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "b", dtype="float32", attn_implementation="eager"
    )
    assert type(back) is type(model) or name in ("mistral",)
    ids = torch.tensor([vocab.encode(TEXT, bos=not without)])
    logits = back(ids, use_cache=False).logits[0].numpy()
    np.testing.assert_allclose(logits, found[without:], rtol=0, atol=TOLERANCE)


LONG_TEXT = (TEXT * 3)[:200]
TIED = {"tie_word_embeddings": True}
ORIGINAL = {"original_max_position_embeddings": 32, "rope_theta": 500.0}
BIASED = {"attention_bias": True}
SLIDING = {"model_type": "mistral", "sliding_window": 7}
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
# The fields of the config that makes the weights, those that its config.json then gets, and the
# tensors that its file then lacks.
CONTRADICTIONS = {
    "tied, with another output": ({}, TIED, ()),
    "tied, with an output alone": ({}, TIED, (EMBEDDING,)),
    "tied, with an embedding alone": ({}, TIED, (HEAD,)),
    "biases, turned off": (BIASED, {"attention_bias": False}, ()),
    "biases of a mistral": (BIASED, {**SLIDING, "sliding_window": None, **BIASED}, ()),
    "swish": ({}, {"hidden_act": "swish"}, ()),
    "all layers slide": ({}, SLIDING | {"layer_types": ["sliding_attention"] * 2}, ()),
    "no layer slides": ({}, SLIDING | {"layer_types": ["full_attention"] * 2}, ()),
    "layers of no type": ({}, SLIDING | {"layer_types": None}, ()),
    **{
        f"original positions {place}": (
            {},
            {
                "rope_parameters": None,
                "rope_scaling": {
                    **{name: x for name, x in LLAMA3.items() if name not in ORIGINAL},
                    **inside,
                },
                **beside,
            },
            (),
        )
        for place, inside, beside in (
            ("inside", ORIGINAL, {}),
            ("beside", {}, ORIGINAL),
            ("in both", {"original_max_position_embeddings": 128}, ORIGINAL),
        )
    },
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
@pytest.mark.filterwarnings("ignore:.* stored biases")
@torch.no_grad()
def test_what_a_config_and_its_tensors_say_together(name, tmp_path):
    fields, edit, lacking = CONTRADICTIONS[name]
    foreign("Llama", fields).save_pretrained(tmp_path)
    config, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    stored = json.loads(config.read_text()) | edit
    stored.pop("architectures")
    config.write_text(json.dumps(stored))
    tensors = safetensors.numpy.load_file(weights)
    for lacked in lacking:
        del tensors[lacked]
    safetensors.numpy.save_file(tensors, weights, metadata={"format": "pt"})
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype="float32", attn_implementation="eager"
    )
    expected = model(theirs(LONG_TEXT, {}), use_cache=False).logits[0].numpy()
    found = bytelax.load(tmp_path).logits(np.asarray([vocab.encode(LONG_TEXT)]))[0, 1:]
    np.testing.assert_allclose(found[:, vocab.OFFSET :], expected, rtol=0, atol=TOLERANCE)


EDITS = [
    {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
    {"rope_scaling": {"type": "default"}, "rope_theta": 50.0},  # `rope_parameters` is left aside
    {"rope_parameters": None, "rope_theta": 50.0},
    {"rope_parameters": None},
    {"rms_norm_eps": 0.1},
    {"sliding_window": 4},
    {"sliding_window": None},
    {"sliding_window": None, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
]


@pytest.mark.parametrize("edit", EDITS)
@torch.no_grad()
def test_what_a_config_says_once_it_is_edited(edit, tmp_path):
    model = models.model(models.replace(models.BYTE_LM, trunk={"window": 6}), scale=1.0)
    checkpoints.write(tmp_path / "a", model.config, model.params, layout="huggingface")
    stored = tmp_path / "a" / "config.json"
    stored.write_text(json.dumps(json.loads(stored.read_text()) | edit))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype="float32")
    ids = np.asarray([vocab.encode(TEXT)])
    expected = theirs(torch.tensor(ids), use_cache=False).logits.numpy()
    found = bytelax.load(tmp_path / "a").logits(ids)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    assert np.abs(found - model.logits(ids)).max() > 100 * TOLERANCE, "the edit is of no matter"


@torch.no_grad()
def test_tiny_lm_in_transformers_and_back(tmp_path, capsys):
    """Its heads stay in the file, where transformers ignores them."""
    out = str(tmp_path / "a")
    with pytest.warns(UserWarning, match="ignores heads"):
        assert cli.main([*"convert --to huggingface --model tiny-lm --out".split(), out]) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype="float32")
    ours, ids = bytelax.load("tiny-lm"), np.asarray([vocab.encode(TEXT * 4)])
    expected = theirs(torch.tensor(ids), use_cache=False).logits.numpy()
    np.testing.assert_allclose(ours.logits(ids), expected, rtol=0, atol=1e-4)
    theirs.save_pretrained(tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["bytelax"] == json.loads((tmp_path / "a" / "config.json").read_text())["bytelax"]
