"""Fresh random models of transformers, saved and read back: `make parity`."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

import bytelax  # noqa: E402
from bytelax import checkpoints, cli, vocab  # noqa: E402
from bytelax.models.blt import BLT  # noqa: E402
from tests.helpers import models_for_tests as models  # noqa: E402

TEXT = "Fresh weights, the same logits: naïve café, 日本語, x = [1, 22, 333]\n\n".encode()
TOLERANCE = 2e-5
NEW_BYTES = 12
VARIANTS = {
    "base": {},
    "k4": {"patch_vectors": 4},
    "gqa": {"kv_heads": 1, "global_kv_heads": 2},
    "window": {"window": 6, "patcher_window": 9},
}


def build(patch_vectors=2, kv_heads=2, global_kv_heads=4, window=512, patcher_window=512, seed=0):
    def stack(dim, layers, heads, kv_heads, **more):
        return {
            "hidden_size": dim,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "intermediate_size": 2 * dim,
            **more,
        }

    local = {"cross_attn_k": patch_vectors, "hidden_size_global": 48}
    config = transformers.BltConfig(
        cross_attn_k=patch_vectors,
        max_patch_length=None,
        encoder_hash_byte_group_size=[2, 4, 7],
        encoder_hash_byte_group_vocab=101,
        encoder_hash_byte_group_nb_functions=2,
        local_attention_window_len=window,
        tie_word_embeddings=False,
        encoder_config=stack(24, 2, 2, kv_heads, **local, cross_attn_all_layers=False),
        decoder_config=stack(24, 2, 2, kv_heads, **local, cross_attn_all_layers=True),
        global_config=stack(48, 2, 4, global_kv_heads),
        patcher_config=stack(16, 2, 2, kv_heads, sliding_window=patcher_window),
    )
    torch.manual_seed(seed)
    model = transformers.BltForCausalLM._from_config(config, attn_implementation="eager")
    for name, weight in model.named_parameters():
        if "norm" in name:
            weight.normal_(1, 0.25)
        else:
            weight.normal_(0, 0.5 if "embed_tok" in name else weight.shape[1] ** -0.5)
    # The threshold that cuts a quarter of the text's bytes, in the widest gap near it.
    entropies, *_ = model.float().eval().model.patcher(torch.tensor([vocab.encode(TEXT)]))
    upper = entropies[0, 1:].sort().values[len(TEXT) * 5 // 8 : len(TEXT) * 7 // 8]
    widest = upper.diff().argmax()
    model.config.patching_threshold = float((upper[widest] + upper[widest + 1]) / 2)
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


@pytest.mark.parametrize("window", [None, 6])
@torch.no_grad()
def test_byte_transformers_are_llamas(window, tmp_path):
    model = models.model(models.replace(models.BYTE_LM, trunk={"window": window}), scale=1.0)
    checkpoints.write(tmp_path / "a", model.config, model.params, layout="huggingface")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "a", dtype="float32", attn_implementation="eager"
    )
    assert type(theirs).__name__ == ("LlamaForCausalLM" if window is None else "MistralForCausalLM")
    ids = np.asarray([vocab.encode(TEXT)])
    expected = theirs(torch.tensor(ids), use_cache=False).logits.numpy()
    np.testing.assert_allclose(model.logits(ids), expected, rtol=0, atol=TOLERANCE)


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
    with pytest.warns(UserWarning, match="ignores heads"):
        assert (
            cli.main(
                [
                    "convert",
                    "--model",
                    "tiny-lm",
                    "--out",
                    str(tmp_path / "a"),
                    "--to",
                    "huggingface",
                ]
            )
            == 0
        )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "a", dtype="float32")
    ours, ids = bytelax.load("tiny-lm"), np.asarray([vocab.encode(TEXT * 4)])
    expected = theirs(torch.tensor(ids), use_cache=False).logits.numpy()
    np.testing.assert_allclose(ours.logits(ids), expected, rtol=0, atol=1e-4)
    theirs.save_pretrained(tmp_path / "b")
    config = json.loads((tmp_path / "b" / "config.json").read_text())
    assert config["bytelax"] == json.loads((tmp_path / "a" / "config.json").read_text())["bytelax"]
