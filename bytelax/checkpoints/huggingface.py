"""The layouts of transformers: config.json and safetensors files.

A BLT is a `BltForCausalLM`; a byte transformer is a Llama or one of its relatives, see `llama`. A
config is read from the fields that transformers reads; what transformers does not have is stored
under "bytelax" in config.json, so that bytelax reads back exactly the model it wrote. A BLT that
transformers would load but compute wrongly has a `model_type` of its own, which it refuses.

`max_bytes` is the encoder's `max_position_embeddings`, which counts bytes (24576 as released). The
model's own value, 4096, counts patches and is not a limit here.
"""

import dataclasses
import json
import pathlib
import warnings
from collections.abc import Mapping
from typing import Any

from flax.traverse_util import flatten_dict

from bytelax.checkpoints import byte_ids, layout, llama, safetensors_file
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.stack_fields import Defaults, Stack, first, stack_json, transformer
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import Config
from bytelax.models.patching import PatchingConfig

MODEL_TYPES = {
    "blt": BLTConfig,
    "bytelax-blt": BLTConfig,
    **dict.fromkeys(llama.MODEL_TYPES, ByteLMConfig),
}
_WINDOW = 512  # default of a missing field, which the released configs predate
_MAX_BYTES = 24576
_PATCHER_THETA = 10_000.0
_GATE = "layers.0.mlp.gate_proj.weight"
# Without these fields transformers computes the same, except for texts with an EOS inside.
_HARMLESS = {"mask_documents", "patcher.mask_documents"}
_HEADS = "heads."  # fields of heads, which transformers ignores


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Stack(Stack):
    """The fields of one stack of a BLT."""

    sliding_window: int | None = _WINDOW
    cross_attn_all_layers: bool | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Fields:
    """The fields of a BLT's config.json that are read."""

    encoder_config: _Stack
    global_config: _Stack
    decoder_config: _Stack
    patcher_config: _Stack | None = None
    patch_in_forward: bool = True
    patching_mode: str = "entropy"
    patching_threshold: float = PatchingConfig.threshold
    patching_threshold_add: float | None = None
    monotonicity: bool | None = None
    max_patch_length: int | None = None
    local_attention_window_len: int | None = _WINDOW
    cross_attn_k: int = 2
    encoder_hash_byte_group_size: tuple[int, ...] | None = None
    encoder_hash_byte_group_vocab: int = 500_002
    encoder_hash_byte_group_nb_functions: int = 1
    vocab_size: int = 260
    patch_size: float = 4  # its value changes nothing, but with null all patches are of one byte
    tie_word_embeddings: bool | None = None
    is_causal: bool | None = None
    per_layer_config: dict | None = None
    quantization_config: dict | None = None
    bytelax: dict | None = None

    def __post_init__(self):
        plain.require(
            self,
            tie_word_embeddings=False,
            is_causal=True,
            per_layer_config=None,
            quantization_config=None,
        )
        if self.patch_in_forward and self.patcher_config is None:
            raise ValueError("patch_in_forward needs the object patcher_config")


def read_config(
    directory: pathlib.Path, asked: Mapping[str, Any]
) -> tuple[Config, dict[str, Tensor]]:
    """Reads the config of a directory and its state dict.

    Args:
      directory: of the checkpoint.
      asked: which ids are bytes; see `byte_ids.find`.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run.
    """
    source = str(directory / "config.json")
    fields = plain.read_json(directory / "config.json")
    _check_model_type(fields, source)
    tensors = safetensors_file.read_directory(directory)
    ids, size = None, 0
    if fields["model_type"] in llama.MODEL_TYPES and fields.get("bytelax") is None:
        ids, size = byte_ids.find(directory, fields, asked), fields["vocab_size"]
        fields = ids.fields(fields)
    else:
        byte_ids.refuse(asked)
    config = parse(fields, tensors, source=source)
    if isinstance(config, BLTConfig):
        tensors = _pooled_last(tensors, plain.known_fields(_Fields, fields, source), config)
    elif fields["model_type"] in llama.MODEL_TYPES:
        tied = fields.get("tie_word_embeddings") is True
        tensors = llama.from_state_dict(config, tensors, tied=tied)
        if ids is not None:
            tensors |= ids.reordered(tensors, size, source)
    return config, tensors


check = layout.check
read_parameters = layout.read_parameters


def write(directory: pathlib.Path, config: Config, params: Mapping, *, int8: bool = False) -> None:
    """Writes config.json and model.safetensors.

    Args:
      directory: where to write them.
      config: config of the model.
      params: its parameters.
      int8: round the matrices of the layers to int8; see `safetensors_file`.

    Raises:
      CheckpointError: the parameters do not match the config.
    """
    tensors = layout.state_dict(config, params)
    if isinstance(config, ByteLMConfig):
        tensors = llama.to_state_dict(config, tensors)
    head = tensors["lm_head.weight"].dtype.name
    fields = {**to_config_json(config), "dtype": head}
    (directory / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    if int8:
        tensors = safetensors_file.as_int8(tensors)
    safetensors_file.write_file(directory / safetensors_file.SINGLE, tensors)


def parse(fields: dict, tensors: Mapping[str, Tensor], *, source: str) -> Config:
    """Parses a config.json, as written by bytelax or by any release of transformers.

    Args:
      fields: the JSON object.
      tensors: the state dict, for sizes that config.json leaves out.
      source: name of config.json in error messages.

    Raises:
      CheckpointError: the model type or the patching mode is unknown, or the config refuses a
        value.
    """
    _check_model_type(fields, source)
    model_type = fields["model_type"]
    if model_type in llama.MODEL_TYPES:
        theirs = llama.config_fields(fields, source)
    else:
        theirs = _ours(plain.known_fields(_Fields, fields, source), tensors)
    own = fields.get("bytelax") or {}
    if not isinstance(own, dict):
        raise CheckpointError(f"{source}: 'bytelax' must be an object, not {own!r}")
    config: Config = plain.from_fields(MODEL_TYPES[model_type], plain.merge(theirs, own), source)
    unlike = [] if model_type == "bytelax-blt" else _fatal(plain.difference(own, theirs))
    if unlike:
        raise CheckpointError(
            f"{source}: the object 'bytelax' has {', '.join(unlike)}, unlike the fields that "
            "transformers reads; change the one or the other"
        )
    mode = fields.get("patching_mode", "entropy")
    # A mode that transformers does not have is accepted if the object "bytelax" repeats it.
    if isinstance(config, BLTConfig) and mode not in ("entropy", "byte", config.patching.mode):
        raise CheckpointError(f"{source}: patching_mode {mode!r} is not one of entropy, byte")
    return config


def _check_model_type(fields: Mapping, source: str) -> None:
    model_type = fields.get("model_type")
    if not isinstance(model_type, str) or model_type not in MODEL_TYPES:
        if fields.get("format") == "bytelax-heads":
            raise CheckpointError(f"{source} is of heads alone: load their model, with heads=")
        raise CheckpointError(
            f"{source} is of model_type {model_type!r}; bytelax reads {', '.join(MODEL_TYPES)}"
        )


def to_config_json(config: Config) -> dict:
    """Converts a config to the JSON object from which `parse` restores it."""
    fields, lost = _emit(config), _lost(config)
    if lost or isinstance(config, ByteLMConfig):  # by which its vocabulary is known to be ours
        fields["bytelax"] = lost
    if _fatal(lost):
        fields["model_type"] = "bytelax-blt"
        del fields["architectures"]
    return fields


def check_transformers(config: Config) -> None:
    """Checks that transformers can load the model that `write` writes and computes the same.

    Warns of heads, which transformers ignores, and if the results differ for some texts only.

    Raises:
      CheckpointError: transformers cannot run the model; the message names the fields.
    """
    fatal = _fatal(_lost(config))
    if fatal:
        raise CheckpointError(
            f"transformers cannot express {', '.join(fatal)}; use the layout 'orbax'"
        )
    if config.heads is not None:
        warnings.warn("transformers ignores heads: only bytelax drafts with them", stacklevel=2)
    if config.mask_documents:
        warnings.warn(
            "transformers ignores mask_documents: it differs after an EOS inside a text",
            stacklevel=2,
        )
    if isinstance(config, BLTConfig) and config.patching.max_patch_length is not None:
        warnings.warn(
            "transformers is wrong at the last position of a text when max_patch_length is set",
            stacklevel=2,
        )


def _ours(c: _Fields, tensors: Mapping[str, Tensor]) -> dict:
    """Builds the fields of a BLTConfig from those of transformers."""

    def part(sub, name, defaults, window=None):
        return transformer(sub, defaults, window, tensors.get(f"model.{name}.{_GATE}"))

    window, patcher = c.local_attention_window_len, None
    if c.patch_in_forward:
        p = c.patcher_config
        assert p is not None  # `_Fields` refuses it
        patcher = {
            "trunk": part(p, "patcher", Defaults(768, 14, 12, _PATCHER_THETA), p.sliding_window),
            "max_bytes": first(p.max_position_embeddings, 8192),
            "heads": None,
            "mask_documents": False,
            "vocab_size": p.vocab_size,
            "bos": True,
            "eos": True,
        }
    entropy = patcher is not None and c.patching_mode == "entropy"
    every = first(c.decoder_config.cross_attn_all_layers, True)
    return {
        "encoder": part(c.encoder_config, "local_encoder", Defaults(1024, 1, 16), window),
        "global_transformer": part(c.global_config, "global_transformer", Defaults(2048, 25, 16)),
        "decoder": part(c.decoder_config, "local_decoder", Defaults(1024, 9, 16), window),
        "patching": {
            "mode": "entropy" if entropy else "byte",
            "threshold": c.patching_threshold,
            "monotonicity": bool(c.monotonicity),
            "threshold_add": c.patching_threshold_add,
            "max_patch_length": c.max_patch_length,
            "stride": PatchingConfig.stride,
        },
        "patcher": patcher,
        "hashing": {
            "groups": list(c.encoder_hash_byte_group_size or (3, 4, 5, 6, 7, 8)),
            "vocab": c.encoder_hash_byte_group_vocab,
            "functions": c.encoder_hash_byte_group_nb_functions,
        },
        "patch_vectors": c.cross_attn_k,
        "decoder_cross_attention": "all" if every else "first",
        "decoder_input": "encoder",
        "block_size": 0,
        "mask_documents": False,
        "max_bytes": first(c.encoder_config.max_position_embeddings, _MAX_BYTES),
        "vocab_size": c.vocab_size,
        "heads": None,
    }


def _emit(config: Config) -> dict:
    """Builds config.json as transformers 5.24 writes it."""
    if isinstance(config, ByteLMConfig):
        return llama.to_config_json(config)
    enc, glob, dec = config.encoder, config.global_transformer, config.decoder
    local = {
        "vocab_size": config.vocab_size,
        "cross_attn_k": config.patch_vectors,
        "hidden_size_global": glob.dim,
    }
    patcher = {}
    if config.patcher is not None:
        patcher["patcher_config"] = {
            **stack_json(config.patcher.trunk, "blt_patcher", config.patcher.max_bytes),
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
            **stack_json(enc, "blt_local_encoder", config.max_bytes),
            **local,
            "cross_attn_all_layers": False,
            "sliding_window": enc.window,
        },
        "decoder_config": {
            **stack_json(dec, "blt_local_decoder", config.max_bytes),
            **local,
            "cross_attn_all_layers": config.decoder_cross_attention == "all",
        },
        "global_config": stack_json(glob, "blt_global_transformer", config.max_bytes),
    }


def _lost(config: Config) -> dict:
    """The config fields that are lost if only the fields of transformers are stored."""
    emitted = _emit(config)
    if isinstance(config, ByteLMConfig):
        theirs = llama.config_fields(emitted, "config.json")
    else:
        theirs = _ours(plain.known_fields(_Fields, emitted, "config.json"), {})
    return plain.difference(plain.to_fields(config), theirs)


def _fatal(lost: dict) -> list[str]:
    """Those of the lost fields without which transformers computes something else, as text."""
    return [
        f"{name}={value!r}"
        for name, value in flatten_dict(lost, sep=".").items()
        if name not in _HARMLESS and not name.startswith(_HEADS)
    ]


def _pooled_last(tensors: dict[str, Tensor], fields: _Fields, config: BLTConfig) -> dict:
    """The state dict without encoder cross-attentions whose output transformers discards.

    An encoder with cross-attention in all layers pools again in each layer, and only the result of
    the last layer is used.
    """
    if not fields.encoder_config.cross_attn_all_layers:
        return tensors
    cross = "model.local_encoder.cross_attn_layers."
    last = f"{cross}{config.encoder.layers - 1}."
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(cross)}
    for name, tensor in tensors.items():
        if name.startswith(last):
            kept[f"{cross}0.{name.removeprefix(last)}"] = tensor
    return kept
