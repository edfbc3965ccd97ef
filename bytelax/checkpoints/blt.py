"""A BLT as the `BltForCausalLM` of transformers.

`max_bytes` is the encoder's `max_position_embeddings`, which counts bytes (24576 as released). The
model's own value, 4096, counts patches and is not a limit here.
"""

import dataclasses
from collections.abc import Mapping

from bytelax.checkpoints import config as plain
from bytelax.checkpoints.stack_fields import Defaults, Stack, first, stack_json, transformer
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.configs import BLTConfig, PatchingConfig

MODEL_TYPES = ("blt", "bytelax-blt")
_WINDOW = 512  # default of a missing field, which the released configs predate
_MAX_BYTES = 24576
_PATCHER_THETA = 10_000.0
_GATE = "layers.0.mlp.gate_proj.weight"


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


def config_fields(fields: Mapping, source: str, tensors: Mapping[str, Tensor]) -> dict:
    """Builds the fields of a BLTConfig from those of transformers.

    The state dict has the sizes that config.json leaves out.

    Raises:
      CheckpointError: a field has a value with which bytelax does not compute.
    """
    c = plain.known_fields(_Fields, fields, source)

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


def to_config_json(config: BLTConfig) -> dict:
    """Converts a config to the fields that transformers 5.24 writes."""
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


def to_state_dict(config: BLTConfig, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the tensors, whose names are those of transformers already."""
    return state


def from_state_dict(
    config: BLTConfig, tensors: dict[str, Tensor], fields: Mapping, source: str
) -> dict[str, Tensor]:
    """Leaves out encoder cross-attentions whose output transformers discards.

    An encoder with cross-attention in all layers pools again in each layer, and only the result of
    the last layer is used.
    """
    known = plain.known_fields(_Fields, fields, source)
    if not known.encoder_config.cross_attn_all_layers:
        return tensors
    cross = "model.local_encoder.cross_attn_layers."
    last = f"{cross}{config.encoder.layers - 1}."
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(cross)}
    for name, tensor in tensors.items():
        if name.startswith(last):
            kept[f"{cross}0.{name.removeprefix(last)}"] = tensor
    return kept
