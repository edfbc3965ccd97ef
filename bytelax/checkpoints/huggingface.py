"""The layout of transformers' `BltForCausalLM`: config.json and safetensors files.

What transformers has no field for lies in config.json under "bytelax", so that our own models come
back exactly. A model that transformers would load and compute wrongly has another `model_type`
there, which it refuses. A byte transformer alone has one too.

`max_bytes` is the encoder's `max_position_embeddings` (24576 as released: bytes); the model's own
4096 counts patches and bounds nothing here.
"""

import json
import pathlib
import warnings
from collections.abc import Mapping

import numpy as np

from bytelax.checkpoints import config_fields, layout, safetensors_file
from bytelax.checkpoints.errors import CheckpointError
from bytelax.checkpoints.layout import Config, Shardings
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.patching import PatchingConfig

MODEL_TYPES = {"blt": BLTConfig, "bytelax-blt": BLTConfig, "bytelax-byte-lm": ByteLMConfig}
_WINDOW = 512  # where a config says nothing: the released ones predate the field
_MAX_BYTES = 24576
_THETA = 500_000.0
_PATCHER_THETA = 10_000.0
# What a sub-config that leaves a field out means: dim, layers, heads.
_ENCODER = (1024, 1, 16)
_DECODER = (1024, 9, 16)
_GLOBAL = (2048, 25, 16)
_PATCHER = (768, 14, 12)
# Transformers computes the same without these fields, texts with an EOS inside excepted.
_HARMLESS = {"mask_documents", "patcher.mask_documents"}


def read(
    directory: pathlib.Path,
    *,
    dtype: np.dtype | None,
    overrides: dict,
    shardings: Shardings | None,
) -> tuple[Config, dict]:
    """Config and parameters of a directory; see `bytelax.checkpoints.read`."""
    fields = config_fields.read_json(directory / "config.json")
    tensors = safetensors_file.read_directory(directory)
    config = read_config(fields, tensors, source=str(directory / "config.json"))
    config = config_fields.override(config, overrides)
    if isinstance(config, BLTConfig):
        tensors = _used(tensors, config, fields)
    params = layout.read_parameters(
        config, tensors, dtype=dtype, source=str(directory), shardings=shardings
    )
    return config, params


def write(directory: pathlib.Path, config: Config, params: Mapping) -> None:
    """Writes config.json and model.safetensors."""
    tensors = layout.state_dict(config, params)
    head = tensors["lm_head.weight"].dtype.name
    fields = {**to_config_json(config), "dtype": head}
    (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)


def read_config(fields: dict, tensors: Mapping[str, Tensor], *, source: str) -> Config:
    """The config of a config.json, in the spelling of any release of transformers.

    Args:
      fields: the JSON object.
      tensors: the state dict, asked for the sizes that config.json leaves out.
      source: what to call config.json in errors.

    Raises:
      CheckpointError: another model type, or a value we cannot run.
    """
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        raise CheckpointError(
            f"{source} is of model_type {model_type!r}; bytelax reads {', '.join(MODEL_TYPES)}"
        )
    own = fields.get("bytelax", {})
    if MODEL_TYPES[model_type] is ByteLMConfig:
        return config_fields.from_fields(ByteLMConfig, own, source)
    parsed = config_fields.merge(_parse(fields, tensors, source), own)
    config = config_fields.from_fields(BLTConfig, parsed, source)
    mode = fields.get("patching_mode", "entropy")
    # A mode that transformers does not know is ours where "bytelax" says it again.
    if mode not in ("entropy", "byte", config.patching.mode):
        raise CheckpointError(f"{source}: patching_mode {mode!r} is not one of entropy, byte")
    return config


def to_config_json(config: Config) -> dict:
    """The JSON object that `read_config` turns back into `config`."""
    if isinstance(config, ByteLMConfig):
        own = config_fields.to_fields(config)
        return {"model_type": "bytelax-byte-lm", "bytelax": own}
    fields, lost = _emit(config), _lost(config)
    if lost:
        fields["bytelax"] = lost
    if set(_paths(lost)) - _HARMLESS:
        fields["model_type"] = "bytelax-blt"
        del fields["architectures"]
    return fields


def check_transformers(config: Config) -> None:
    """Makes sure that transformers computes what we compute from the files that `write` leaves.

    Warns where it does so only for some texts.

    Raises:
      CheckpointError: it cannot; the message says why.
    """
    if isinstance(config, ByteLMConfig):
        raise CheckpointError(
            "transformers has no class for a byte transformer alone; use the layout 'orbax'"
        )
    lost = _paths(_lost(config))
    fatal = [f"{name}={value!r}" for name, value in lost.items() if name not in _HARMLESS]
    if fatal:
        raise CheckpointError(
            f"transformers cannot express {', '.join(fatal)}; use the layout 'orbax'"
        )
    if any(lost.values()):
        warnings.warn(
            "transformers ignores mask_documents: it differs after an EOS inside a text",
            stacklevel=2,
        )
    if config.patching.max_patch_length is not None:
        warnings.warn(
            "transformers is wrong at the last position of a text when max_patch_length is set",
            stacklevel=2,
        )


def _parse(fields: dict, tensors: Mapping[str, Tensor], source: str) -> dict:
    """The fields of a BLTConfig that transformers knows."""
    window = fields.get("local_attention_window_len", _WINDOW)

    def part(key, name, defaults, theta=_THETA, window=None):
        c = fields.get(key)
        if not isinstance(c, dict):
            raise CheckpointError(f"{source} lacks the object {key}")
        return _transformer(c, defaults, theta, window, tensors, f"{name}.layers.0", source)

    encoder = fields.get("encoder_config") or {}
    decoder = fields.get("decoder_config") or {}
    patcher = None
    if fields.get("patch_in_forward", True):
        c = fields.get("patcher_config")
        sliding = c.get("sliding_window", _WINDOW) if isinstance(c, dict) else _WINDOW
        patcher = {
            "trunk": part("patcher_config", "model.patcher", _PATCHER, _PATCHER_THETA, sliding),
            "max_bytes": c.get("max_position_embeddings", 8192),
            "heads": None,
            "mask_documents": False,
            "vocab_size": c.get("vocab_size", 260),
        }
    entropy = patcher is not None and fields.get("patching_mode", "entropy") == "entropy"
    rule = PatchingConfig()
    return {
        "encoder": part("encoder_config", "model.local_encoder", _ENCODER, window=window),
        "global_transformer": part("global_config", "model.global_transformer", _GLOBAL),
        "decoder": part("decoder_config", "model.local_decoder", _DECODER, window=window),
        "patching": {
            "mode": "entropy" if entropy else "byte",
            "threshold": fields.get("patching_threshold", rule.threshold),
            "monotonicity": fields.get("monotonicity", False) or False,
            "threshold_add": fields.get("patching_threshold_add"),
            "max_patch_length": fields.get("max_patch_length"),
            "stride": rule.stride,
        },
        "patcher": patcher,
        "hashing": {
            "groups": fields.get("encoder_hash_byte_group_size") or [3, 4, 5, 6, 7, 8],
            "vocab": fields.get("encoder_hash_byte_group_vocab", 500_002),
            "functions": fields.get("encoder_hash_byte_group_nb_functions", 1),
        },
        "patch_vectors": fields.get("cross_attn_k", 2),
        "decoder_cross_attention": "all" if decoder.get("cross_attn_all_layers", True) else "first",
        "decoder_input": "encoder",
        "block_size": 0,
        "mask_documents": False,
        "max_bytes": encoder.get("max_position_embeddings", _MAX_BYTES),
        "vocab_size": fields.get("vocab_size", 260),
    }


def _transformer(c, defaults, theta, window, tensors, block, source):
    """The fields of a TransformerConfig from a sub-config."""
    dim, layers, heads = (
        c.get(key, default)
        for key, default in zip(
            ("hidden_size", "num_hidden_layers", "num_attention_heads"), defaults, strict=True
        )
    )
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise CheckpointError(f"{source} asks for {kind!r} rotary positions; only 'default' works")
    if c.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"{source} asks for {c['hidden_act']!r}; only 'silu' works")
    ffn_dim = c.get("intermediate_size")
    if ffn_dim is None:
        gate = tensors.get(f"{block}.mlp.gate_proj.weight")
        ffn_dim = gate.shape[0] if gate else 256 * -(-(8 * dim // 3) // 256)
    return {
        "dim": dim,
        "layers": layers,
        "heads": heads,
        "kv_heads": c.get("num_key_value_heads") or heads,
        "head_dim": c.get("head_dim") or dim // heads,
        "ffn_dim": ffn_dim,
        "window": window,
        "rope_theta": rope.get("rope_theta", c.get("rope_theta", theta)),
        "norm_eps": c.get("rms_norm_eps", c.get("norm_eps", 1e-5)),
    }


def _emit(config: BLTConfig) -> dict:
    """config.json as transformers 5.23 writes it."""
    enc, glob, dec = config.encoder, config.global_transformer, config.decoder
    local = {
        "vocab_size": config.vocab_size,
        "cross_attn_k": config.patch_vectors,
        "hidden_size_global": glob.dim,
    }
    patcher = {}
    if config.patcher is not None:
        patcher["patcher_config"] = {
            **_emit_transformer(config.patcher.trunk, "blt_patcher", config.patcher.max_bytes),
            "vocab_size": config.patcher.vocab_size,
            "sliding_window": config.patcher.trunk.window,
        }
    return {
        "architectures": ["BltForCausalLM"],
        "model_type": "blt",
        "vocab_size": config.vocab_size,
        "max_position_embeddings": config.max_bytes,
        "patch_in_forward": config.patcher is not None,
        "patching_mode": config.patching.mode,
        "patching_threshold": config.patching.threshold,
        "max_patch_length": config.patching.max_patch_length,
        "local_attention_window_len": enc.window,
        "cross_attn_k": config.patch_vectors,
        "encoder_hash_byte_group_size": list(config.hashing.groups),
        "encoder_hash_byte_group_vocab": config.hashing.vocab,
        "encoder_hash_byte_group_nb_functions": config.hashing.functions,
        "tie_word_embeddings": False,
        "use_cache": False,
        **patcher,
        "encoder_config": {
            **_emit_transformer(enc, "blt_local_encoder", config.max_bytes),
            **local,
            "cross_attn_all_layers": False,
            "sliding_window": enc.window,
        },
        "decoder_config": {
            **_emit_transformer(dec, "blt_local_decoder", config.max_bytes),
            **local,
            "cross_attn_all_layers": config.decoder_cross_attention == "all",
        },
        "global_config": _emit_transformer(glob, "blt_global_transformer", config.max_bytes),
    }


def _emit_transformer(c, model_type, max_bytes):
    return {
        "model_type": model_type,
        "hidden_size": c.dim,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "intermediate_size": c.ffn_dim,
        "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": max_bytes,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": c.rope_theta},
        "tie_word_embeddings": False,
    }


def _lost(config: BLTConfig) -> dict:
    """The fields that do not come back from transformers' own."""
    parsed = _parse(_emit(config), {}, "config.json")
    return config_fields.difference(config_fields.to_fields(config), parsed)


def _paths(fields, prefix=""):
    """{"a": {"b": x}} -> {"a.b": x}."""
    flat = {}
    for name, value in fields.items():
        nested = isinstance(value, dict)
        flat |= _paths(value, f"{prefix}{name}.") if nested else {f"{prefix}{name}": value}
    return flat


def _used(tensors: dict[str, Tensor], config: BLTConfig, fields: dict) -> dict[str, Tensor]:
    """The state dict without the modules whose output transformers throws away.

    An encoder with cross-attention in all layers pools anew in each: the last one is what counts.
    """
    if config.patcher is None:
        tensors = {k: v for k, v in tensors.items() if not k.startswith("model.patcher.")}
    if not fields["encoder_config"].get("cross_attn_all_layers", False):
        return tensors
    cross = "model.local_encoder.cross_attn_layers."
    last = f"{cross}{config.encoder.layers - 1}."
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(cross)}
    for name, tensor in tensors.items():
        if name.startswith(last):
            kept[f"{cross}0.{name.removeprefix(last)}"] = tensor
    return kept
