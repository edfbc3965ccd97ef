"""Meta's layout: `{"args": ...}` in config.json or params.json, the entropy model in a folder.

Sizes that follow from several arguments there (hidden width, key heads) are read off the tensors.
Meta's code ends a document at an EOS and transformers does not, so that `mask_documents` is True
here. Cross-attention has as many key heads as heads there, and no field for another head count.
"""

import json
import pathlib
from collections.abc import Mapping

import numpy as np

from bytelax.checkpoints import config_fields, layout, safetensors_file, tensors, torch_file
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import Config, Shardings
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.patching import PatchingConfig
from bytelax.models.transformer_config import TransformerConfig

_ENTROPY = "entropy_model"
_HASHES = "encoder_hash_tok_embedding"
_HUGGINGFACE = {  # one word of a tensor's name: Meta's, transformers'
    "attention": "self_attn",
    "attention_norm": "input_layernorm",
    "cross_attn_norm_kv": "k_norm",
    "cross_attn_norm_q": "q_norm",
    "feed_forward": "mlp",
    "ffn_norm": "post_attention_layernorm",
    "output": "lm_head",
    "tok_embeddings": "embed_tokens",
    "w1": "gate_proj",
    "w2": "down_proj",
    "w3": "up_proj",
    "wk": "k_proj",
    "wo": "o_proj",
    "wq": "q_proj",
    "wv": "v_proj",
}
_META = {theirs: ours for ours, theirs in _HUGGINGFACE.items()}
_FIXED = {  # the architecture as released; other values are other networks
    "cross_attn_encoder": True,
    "cross_attn_decoder": True,
    "cross_attn_init_by_pooling": True,
    "use_local_encoder_transformer": True,
    "downsampling_by_pooling": "max",
    "weight_tying": False,
}
_PROJECTION = "model.local_decoder.patch_embedding_projection.weight"


def read(
    directory: pathlib.Path,
    *,
    dtype: np.dtype | None,
    overrides: dict,
    shardings: Shardings | None,
) -> tuple[Config, dict]:
    """Config and parameters of a directory; see `bytelax.checkpoints.read`."""
    fields, source = _config_file(directory)
    args = _args(fields, ("args", "model", _ENTROPY), source)
    stored = _weights(directory)
    own = fields.get("bytelax", {})
    if "dim_local_encoder" not in args:
        state = {_rename(name, _HUGGINGFACE): tensor for name, tensor in stored.items()}
        parsed = config_fields.merge(_parse_lm(args, state, "", source), own)
        config = config_fields.from_fields(ByteLMConfig, parsed, source)
    else:
        state = _state_dict(stored, args)
        entropy = _entropy_model(directory)
        entropy_args, rule = None, {}
        if entropy is not None:
            entropy_fields, entropy_source = _config_file(entropy)
            entropy_args = _args(entropy_fields, (_ENTROPY, "args", "model"), entropy_source)
            rule = (entropy_fields.get("data") or {}).get("patcher_args") or {}
            for name, tensor in _weights(entropy).items():
                state[f"model.patcher.{_rename(name, _HUGGINGFACE)}"] = tensor
        parsed = config_fields.merge(_parse(args, entropy_args, rule, state, source), own)
        config = config_fields.from_fields(BLTConfig, parsed, source)
    config = config_fields.override(config, overrides)
    if getattr(config, "patcher", True) is None:
        state = {k: v for k, v in state.items() if not k.startswith("model.patcher.")}
    params = layout.read_parameters(
        config, state, dtype=dtype, source=str(directory), shardings=shardings
    )
    return config, params


def write(directory: pathlib.Path, config: Config, params: Mapping) -> None:
    """Writes config.json, model.safetensors and the folder entropy_model.

    Raises:
      CheckpointError: Meta's code cannot run the model.
    """
    state = layout.state_dict(config, params)
    if isinstance(config, ByteLMConfig):
        args = _emit_lm(config)
        own = config_fields.difference(
            config_fields.to_fields(config), _parse_lm(args, state, "", "config.json")
        )
        _refuse(own)
        _write_json(directory / "config.json", {"args": args, "bytelax": own})
        named = {_rename(name, _META): tensor for name, tensor in state.items()}
        safetensors_file.write_file(directory / safetensors_file.SINGLE, named)
        return
    _check_cross_attention(config)
    args = _emit(config)
    entropy_args = None if config.patcher is None else _emit_lm(config.patcher)
    parsed = _parse(args, entropy_args, {}, state, "config.json")
    own = config_fields.difference(config_fields.to_fields(config), parsed)
    _refuse(own)
    _write_json(directory / "config.json", {"args": args, "bytelax": own})
    main, entropy = _meta_names(state, config)
    safetensors_file.write_file(directory / safetensors_file.SINGLE, main)
    if entropy_args is not None:
        rule = config.patching
        patcher_args = {
            "patching_mode": "entropy",
            "threshold": rule.threshold,
            "threshold_add": rule.threshold_add,
            "monotonicity": rule.monotonicity,
            "max_patch_length": rule.max_patch_length,
        }
        folder = directory / _ENTROPY
        folder.mkdir()
        fields = {_ENTROPY: entropy_args, "data": {"patcher_args": patcher_args}}
        _write_json(folder / "params.json", fields)
        safetensors_file.write_file(folder / safetensors_file.SINGLE, entropy)


def _parse(args, entropy_args, rule, state: Mapping[str, Tensor], source: str) -> dict:
    """The fields of a BLTConfig. `rule` are the patcher's arguments, which overrule `args`."""
    for name, value in _FIXED.items():
        if args.get(name, value) not in (value, None):
            raise CheckpointError(f"{source}: {name} is {args[name]!r}, only {value!r} works")
    if args.get("cross_attn_all_layers_encoder") and args["n_layers_local_encoder"] > 1:
        raise CheckpointError(
            f"{source}: cross-attention in every one of several encoder layers is not supported"
        )
    mode = args.get("patching_mode") or "entropy"
    if mode not in ("entropy", "byte"):
        raise CheckpointError(f"{source}: patching_mode {mode!r} is not one of entropy, byte")
    if mode == "entropy" and entropy_args is None:
        raise CheckpointError(
            f"{source} needs the entropy model: put its folder {_ENTROPY} beneath it or beside it"
        )
    window = args.get("local_attention_window_len", 512)

    def part(key, name, window=None):
        dim, layers, heads = (
            _required(args, f"{size}_{key}", source) for size in ("dim", "n_layers", "n_heads")
        )
        return _transformer(args, dim, layers, heads, window, 500_000.0, state, name)

    encoder = part("local_encoder", "model.local_encoder.", window)
    decoder = part("local_decoder", "model.local_decoder.", window)
    nheads = args.get("cross_attn_nheads")
    for name, local in (("encoder", encoder), ("decoder", decoder)):
        if nheads not in (None, local["heads"]) or local["kv_heads"] != local["heads"]:
            raise CheckpointError(
                f"{source}: the {name}'s cross-attention has {nheads} heads and as many key heads, "
                f"its self-attention {local['heads']} and {local['kv_heads']}; ours are the same"
            )
    patching = PatchingConfig()
    return {
        "encoder": encoder,
        "global_transformer": part("global", "model.global_transformer."),
        "decoder": decoder,
        "patching": {
            "mode": mode,
            "threshold": _first(
                rule.get("threshold"), args.get("patching_threshold"), patching.threshold
            ),
            "monotonicity": _first(rule.get("monotonicity"), args.get("monotonicity"), False),
            "threshold_add": rule.get("threshold_add", args.get("patching_threshold_add")),
            "max_patch_length": rule.get("max_patch_length", args.get("max_patch_length")),
            "stride": patching.stride,
        },
        "patcher": entropy_args
        and _parse_lm(entropy_args, state, "model.patcher.", f"{_ENTROPY} of {source}"),
        "hashing": {
            "groups": args.get("encoder_hash_byte_group_size") or [],
            "vocab": args.get("encoder_hash_byte_group_vocab", 30_000),
            "functions": args.get("encoder_hash_byte_group_nb_functions", 3),
        },
        "patch_vectors": _required(args, "cross_attn_k", source),
        "decoder_cross_attention": (
            "all" if args.get("cross_attn_all_layers_decoder") else "first"
        ),
        "decoder_input": "encoder",
        "block_size": 0,
        "mask_documents": True,
        "max_bytes": _first(args.get("max_encoder_seq_length"), 24576),
        "vocab_size": args.get("vocab_size", 260),
    }


def _parse_lm(args, state: Mapping[str, Tensor], name: str, source: str) -> dict:
    """The fields of a ByteLMConfig."""
    dim, layers, heads = (_required(args, key, source) for key in ("dim", "n_layers", "n_heads"))
    window = args.get("sliding_window", 512)
    return {
        "trunk": _transformer(args, dim, layers, heads, window, 10_000.0, state, name),
        "max_bytes": args.get("max_seqlen", 8192),
        "heads": None,
        "mask_documents": True,
        "vocab_size": args.get("vocab_size", 260),
    }


def _transformer(args, dim, layers, heads, window, theta, state, name):
    head_dim = dim // heads
    gate = state.get(f"{name}layers.0.mlp.gate_proj.weight")
    keys = state.get(f"{name}layers.0.self_attn.k_proj.weight")
    return {
        "dim": dim,
        "layers": layers,
        "heads": heads,
        "kv_heads": keys.shape[0] // head_dim if keys else heads,
        "head_dim": head_dim,
        "ffn_dim": gate.shape[0] if gate else 256 * -(-(8 * dim // 3) // 256),
        "window": window,
        "rope_theta": args.get("rope_theta", theta),
        "norm_eps": args.get("norm_eps", 1e-5),
    }


def _emit(config: BLTConfig) -> dict:
    """The arguments of Meta's `ByteLatentTransformer`."""
    args = {}
    for key, c in (
        ("local_encoder", config.encoder),
        ("global", config.global_transformer),
        ("local_decoder", config.decoder),
    ):
        args |= {f"dim_{key}": c.dim, f"n_layers_{key}": c.layers, f"n_heads_{key}": c.heads}
    rule = config.patching
    return {
        **args,
        **_FIXED,
        **_shared(config.encoder),
        "vocab_size": config.vocab_size,
        "n_kv_heads_global": config.global_transformer.kv_heads,
        "local_attention_window_len": config.encoder.window,
        "cross_attn_k": config.patch_vectors,
        "cross_attn_nheads": config.encoder.heads,
        "cross_attn_all_layers_encoder": False,
        "cross_attn_all_layers_decoder": config.decoder_cross_attention == "all",
        "encoder_hash_byte_group_size": list(config.hashing.groups),
        "encoder_hash_byte_group_vocab": config.hashing.vocab,
        "encoder_hash_byte_group_nb_functions": config.hashing.functions,
        "max_encoder_seq_length": config.max_bytes,
        "patching_mode": rule.mode,
        "patching_threshold": rule.threshold,
        "patching_threshold_add": rule.threshold_add,
        "monotonicity": rule.monotonicity,
        "max_patch_length": rule.max_patch_length,
    }


def _emit_lm(config: ByteLMConfig) -> dict:
    """The arguments of Meta's `LMTransformer`."""
    return {
        "dim": config.trunk.dim,
        "n_layers": config.trunk.layers,
        "n_heads": config.trunk.heads,
        "n_kv_heads": config.trunk.kv_heads,
        **_shared(config.trunk),
        "sliding_window": config.trunk.window,
        "max_seqlen": config.max_bytes,
        "vocab_size": config.vocab_size,
        "attn_bias_type": "local_block_causal",
    }


def _shared(c: TransformerConfig) -> dict:
    return {"rope_theta": c.rope_theta, "norm_eps": c.norm_eps}


def _check_cross_attention(config: BLTConfig) -> None:
    for name, c in (("encoder", config.encoder), ("decoder", config.decoder)):
        if c.kv_heads != c.heads or c.heads != config.encoder.heads:
            raise CheckpointError(
                f"Meta's cross-attention has {config.encoder.heads} heads and as many key heads; "
                f"the {name} has {c.heads} and {c.kv_heads}; use the layout 'orbax'"
            )


def _refuse(own: dict) -> None:
    """Raises unless `own` is only what Meta's code computes differently after an EOS."""
    patcher = own.get("patcher") or {}
    rest = {name: value for name, value in own.items() if name not in ("mask_documents", "patcher")}
    rest |= {f"patcher.{name}": x for name, x in patcher.items() if name != "mask_documents"}
    if rest:
        fields = ", ".join(f"{name}={value!r}" for name, value in rest.items())
        raise CheckpointError(f"Meta's layout cannot hold {fields}; use the layout 'orbax'")


def _state_dict(stored: dict[str, Tensor], args: dict) -> dict[str, Tensor]:
    """The main model's tensors in transformers' names: one hash table, a decoder projection."""
    state, tables = {}, {}
    for name, tensor in stored.items():
        if name.startswith(f"{_HASHES}."):
            tables[int(name.split(".")[1])] = tensor
        elif name.startswith("local_decoder.output."):
            state[name.replace("local_decoder.output", "lm_head")] = tensor
        else:
            state[f"model.{_rename(name, _HUGGINGFACE)}"] = tensor
    if tables:
        state[f"model.{_HASHES}.weight"] = tensors.concatenate([tables[i] for i in sorted(tables)])
    identity = args.get("dim_global") == args.get("dim_local_decoder")
    if _PROJECTION not in state and identity and args.get("cross_attn_k") == 1:
        like = state.get("lm_head.weight")
        eye = np.eye(args["dim_global"], dtype=like.dtype if like else np.float32)
        state[_PROJECTION] = tensors.of_array(eye)
    return state


def _meta_names(
    state: dict[str, Tensor], config: BLTConfig
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The reverse: the main model's tensors and the entropy model's."""
    main, entropy = {}, {}
    for name, tensor in state.items():
        if name.startswith("model.patcher."):
            entropy[_rename(name.removeprefix("model.patcher."), _META)] = tensor
        elif name == "lm_head.weight":
            main["local_decoder.output.weight"] = tensor
        elif name == f"model.{_HASHES}.weight":
            rows = config.hashing.vocab
            for i in range(tensor.shape[0] // rows):
                table = tensors.slice_rows(tensor, i * rows, (i + 1) * rows)
                main[f"{_HASHES}.{i}.weight"] = table
        elif name == _PROJECTION and config.global_transformer.dim == config.decoder.dim:
            if not np.array_equal(tensor.whole(), np.eye(*tensor.shape)):
                raise CheckpointError(
                    "Meta's decoder has no projection when it is as wide as the global "
                    "transformer, and this model's is not the identity; use the layout 'orbax'"
                )
        else:
            main[_rename(name.removeprefix("model."), _META)] = tensor
    return main, entropy


def _rename(name, words):
    return ".".join(words.get(word, word) for word in name.split("."))


def _entropy_model(directory):
    """The folder of the entropy model, beneath the model's or beside it."""
    for folder in (directory / _ENTROPY, directory.absolute().parent / _ENTROPY):
        if folder.is_dir():
            return folder
    return None


def _config_file(directory):
    for name in ("config.json", "params.json"):
        if (directory / name).exists():
            return config_fields.read_json(directory / name), str(directory / name)
    raise CheckpointError(f"{directory} has no config.json or params.json")


def _weights(directory):
    """The tensors of safetensors files, or of consolidated.pth."""
    names = (safetensors_file.SINGLE, safetensors_file.INDEX)
    if any((directory / name).exists() for name in names):
        return safetensors_file.read_directory(directory)
    if (directory / "consolidated.pth").exists():
        return torch_file.read_file(directory / "consolidated.pth")
    raise CheckpointError(f"{directory} has no {safetensors_file.SINGLE} or consolidated.pth")


def _args(fields, keys, source):
    """The model's arguments, under the first of `keys` that holds an object, or bare."""
    for key in keys:
        if isinstance(fields.get(key), dict):
            return fields[key]
    if "dim" in fields:
        return fields
    raise CheckpointError(f"{source} has no model arguments under {', '.join(keys)}")


def _required(args, name, source):
    if name not in args:
        raise CheckpointError(f"{source} lacks {name}")
    return args[name]


def _first(*values):
    return next(value for value in values if value is not None)


def _write_json(path, fields):
    path.write_text(json.dumps(fields, indent=2) + "\n")
