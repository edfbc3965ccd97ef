"""Writes models as Meta released BLT, a layout that bytelax only reads."""

import json
import pathlib

import numpy as np

from bytelax import checkpoints
from bytelax.checkpoints import layout, safetensors_file
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.byte_lm import ByteLMConfig

WORDS = {  # one component of a tensor's name: transformers' -> Meta's
    "self_attn": "attention", "input_layernorm": "attention_norm", "mlp": "feed_forward",
    "post_attention_layernorm": "ffn_norm", "q_norm": "cross_attn_norm_q",
    "k_norm": "cross_attn_norm_kv", "lm_head": "output", "embed_tokens": "tok_embeddings",
    "gate_proj": "w1", "down_proj": "w2", "up_proj": "w3",
    "q_proj": "wq", "k_proj": "wk", "v_proj": "wv", "o_proj": "wo",
}  # fmt: skip
HASHES = "encoder_hash_tok_embedding"


def write(directory, config, params, *, layout):
    """As `checkpoints.write`, in the layout "meta" too."""
    if layout != "meta":
        checkpoints.write(directory, config, params, layout=layout)
    elif isinstance(config, ByteLMConfig):
        save(directory, "config.json", {"args": lm_args(config)}, tensors(config, params))
    else:
        write_blt(pathlib.Path(directory), config, params)


def write_blt(directory, config, params):
    """A BLT without `bytelax`'s own features, its entropy model in a folder of its own."""
    main, entropy = {}, {}
    for name, tensor in tensors(config, params).items():
        name = name.removeprefix("model.")
        if name.startswith("patcher."):
            entropy[name.removeprefix("patcher.")] = tensor
        elif name == "output.weight":
            main["local_decoder.output.weight"] = tensor
        elif name == f"{HASHES}.weight":
            tables = tensor.reshape(-1, config.hashing.vocab, config.encoder.dim)
            main |= {f"{HASHES}.{i}.weight": table for i, table in enumerate(tables)}
        else:
            main[name] = tensor
    save(directory, "config.json", {"args": blt_args(config)}, main)
    rule = config.patching
    patcher_args = {
        "threshold": rule.threshold,
        "threshold_add": rule.threshold_add,
        "monotonicity": rule.monotonicity,
        "max_patch_length": rule.max_patch_length,
    }
    fields = {"entropy_model": lm_args(config.patcher), "data": {"patcher_args": patcher_args}}
    save(directory / "entropy_model", "params.json", fields, entropy)


def tensors(config, params):
    """The state dict with Meta's words."""
    return {
        ".".join(WORDS.get(word, word) for word in name.split(".")): tensor.whole()
        for name, tensor in layout.state_dict(config, params).items()
    }


def blt_args(config):
    stacks = {
        "local_encoder": config.encoder,
        "global": config.global_transformer,
        "local_decoder": config.decoder,
    }
    args = {
        f"{field}_{name}": getattr(stack, ours)
        for name, stack in stacks.items()
        for field, ours in (("dim", "dim"), ("n_layers", "layers"), ("n_heads", "heads"))
    }
    return args | {
        "vocab_size": config.vocab_size,
        "rope_theta": config.encoder.rope_theta,
        "norm_eps": config.encoder.norm_eps,
        "local_attention_window_len": config.encoder.window,
        "cross_attn_encoder": True,
        "cross_attn_decoder": True,
        "cross_attn_k": config.patch_vectors,
        "cross_attn_nheads": config.encoder.heads,
        "cross_attn_all_layers_decoder": config.decoder_cross_attention == "all",
        "downsampling_by_pooling": "max",
        "encoder_hash_byte_group_size": list(config.hashing.groups),
        "encoder_hash_byte_group_vocab": config.hashing.vocab,
        "encoder_hash_byte_group_nb_functions": config.hashing.functions,
        "max_encoder_seq_length": config.max_bytes,
        "patching_mode": config.patching.mode,
    }


def lm_args(config):
    return {
        "dim": config.trunk.dim,
        "n_layers": config.trunk.layers,
        "n_heads": config.trunk.heads,
        "n_kv_heads": config.trunk.kv_heads,
        "rope_theta": config.trunk.rope_theta,
        "norm_eps": config.trunk.norm_eps,
        "sliding_window": config.trunk.window,
        "max_seqlen": config.max_bytes,
        "vocab_size": config.vocab_size,
    }


def save(directory, name, fields, tensors):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    (directory / name).write_text(json.dumps(fields))
    stored = {name: of_array(tensor) for name, tensor in tensors.items()}
    safetensors_file.write_file(directory / safetensors_file.SINGLE, stored)


def of_array(array: np.ndarray) -> Tensor:
    """An array in memory as the `Tensor` of a state dict."""
    return Tensor(array.shape, array.dtype, lambda start, stop: array[start:stop])
