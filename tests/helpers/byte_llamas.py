"""Checkpoints of byte transformers as others leave them: by the names of transformers, random."""

import json

import numpy as np
import safetensors.numpy

SIZES = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100.0,
}


def tensors(fields, seed=0):
    """Random weights by the names of transformers, for heads of their own size."""
    rng = np.random.default_rng(seed)
    dim, ids, ffn = (fields[x] for x in ("hidden_size", "vocab_size", "intermediate_size"))
    width = fields.get("head_dim") or dim // fields["num_attention_heads"]
    of = {"q": fields["num_attention_heads"], "k": fields["num_key_value_heads"]}
    of["v"] = of["k"]
    shapes = {"model.embed_tokens.weight": (ids, dim), "model.norm.weight": (dim,)}
    if not fields.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (ids, dim)
    for index in range(fields["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"{layer}.{name}.weight"] = (dim,)
        for name in ("gate_proj", "up_proj"):
            shapes[f"{layer}.mlp.{name}.weight"] = (ffn, dim)
        shapes[f"{layer}.mlp.down_proj.weight"] = (dim, ffn)
        shapes[f"{layer}.self_attn.o_proj.weight"] = (dim, of["q"] * width)
        if fields.get("attention_bias"):
            shapes[f"{layer}.self_attn.o_proj.bias"] = (dim,)
        for name, heads in of.items():
            shapes[f"{layer}.self_attn.{name}_proj.weight"] = (heads * width, dim)
            if fields.get("attention_bias") or fields["model_type"] == "qwen2":
                shapes[f"{layer}.self_attn.{name}_proj.bias"] = (heads * width,)
            if fields["model_type"] == "qwen3" and name != "v":
                shapes[f"{layer}.self_attn.{name}_norm.weight"] = (width,)
    return {
        name: (("norm" in name) + 0.3 * rng.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def write(directory, fields, files=None, stored=None):
    """A checkpoint of transformers, with other files beside it; by default of random weights."""
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(fields))
    stored = tensors(fields) if stored is None else stored
    safetensors.numpy.save_file(stored, directory / "model.safetensors")
    for name, content in (files or {}).items():
        (directory / name).write_text(json.dumps(content))
    return directory
