"""Reads Meta's layout: config.json or params.json with `args`, and a folder with an entropy model.

Sizes that depend on several of Meta's arguments (hidden width, number of key heads) are taken from
the shapes of the tensors. `mask_documents` is True for this layout, because Meta's code ends a
document at an EOS (transformers does not). Meta's cross-attention has as many key heads as query
heads, and its config has no field for another number.
"""

import dataclasses
import pathlib
import re
from collections.abc import Mapping

import ml_dtypes
import numpy as np

from bytelax.checkpoints import config as plain
from bytelax.checkpoints import layout, safetensors_file, tensors
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.stack_fields import first
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import ModelConfig
from bytelax.models.patching import PatchingConfig

_ENTROPY = "entropy_model"
_HASHES = "encoder_hash_tok_embedding"
_HASH_TABLE = re.compile(rf"{_HASHES}\.(\d{{1,6}})\.weight")
_HUGGINGFACE = {  # one component of a tensor's name: Meta's -> transformers'
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Args:
    """The arguments of Meta's `ByteLatentTransformer` that are read."""

    dim_local_encoder: int
    n_layers_local_encoder: int
    n_heads_local_encoder: int
    dim_global: int
    n_layers_global: int
    n_heads_global: int
    dim_local_decoder: int
    n_layers_local_decoder: int
    n_heads_local_decoder: int
    cross_attn_k: int
    cross_attn_nheads: int | None = None
    cross_attn_all_layers_encoder: bool | None = None
    cross_attn_all_layers_decoder: bool | None = None
    local_attention_window_len: int | None = 512
    rope_theta: float = 500_000.0
    norm_eps: float = 1e-5
    patching_mode: str | None = None
    patching_threshold: float | None = None
    patching_threshold_add: float | None = None
    monotonicity: bool | None = None
    max_patch_length: int | None = None
    encoder_hash_byte_group_size: tuple[int, ...] | None = None
    encoder_hash_byte_group_vocab: int = 30_000
    encoder_hash_byte_group_nb_functions: int = 3
    max_encoder_seq_length: int | None = None
    vocab_size: int = 260
    cross_attn_encoder: bool | None = None
    cross_attn_decoder: bool | None = None
    cross_attn_init_by_pooling: bool | None = None
    use_local_encoder_transformer: bool | None = None
    downsampling_by_pooling: str | None = None
    weight_tying: bool | None = None

    def __post_init__(self):
        plain.require(  # what was released
            self,
            cross_attn_encoder=True,
            cross_attn_decoder=True,
            cross_attn_init_by_pooling=True,
            use_local_encoder_transformer=True,
            downsampling_by_pooling="max",
            weight_tying=False,
        )
        if self.cross_attn_all_layers_encoder and self.n_layers_local_encoder > 1:
            raise ValueError("cross-attention in every one of several encoder layers is not read")
        if (self.patching_mode or "entropy") not in ("entropy", "byte"):
            raise ValueError(f"patching_mode {self.patching_mode!r} is not one of entropy, byte")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _LMArgs:
    """The arguments of Meta's `LMTransformer` that are read."""

    dim: int
    n_layers: int
    n_heads: int
    sliding_window: int | None = 512
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    max_seqlen: int = 8192
    vocab_size: int = 260


def read_config(directory: pathlib.Path) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Reads the config of a directory, and its state dict with the names of transformers.

    Raises:
      CheckpointError: the directory holds no model that bytelax can run.
    """
    fields, source = _config_file(directory)
    args = _args(fields, ("args", "model", _ENTROPY), source)
    stored = _weights(directory)
    if "dim_local_encoder" not in args:
        state = {_renamed(name): tensor for name, tensor in stored.items()}
        theirs = _lm(plain.known_fields(_LMArgs, args, source), state, "")
        return plain.from_fields(ByteLMConfig, theirs, source), state
    known = plain.known_fields(_Args, args, source)
    state = _state_dict(stored, known)
    entropy, patcher = _entropy_model(directory), None
    rule: dict = {}
    if entropy is not None:
        entropy_fields, entropy_source = _config_file(entropy)
        entropy_args = _args(entropy_fields, (_ENTROPY, "args", "model"), entropy_source)
        data = entropy_fields.get("data") or {}
        rule = data.get("patcher_args") or {} if isinstance(data, dict) else data
        if not isinstance(rule, dict):
            raise ValueError(f"{entropy_source}: data.patcher_args is an object, got {rule!r}")
        for name, tensor in _weights(entropy).items():
            state[f"model.patcher.{_renamed(name)}"] = tensor
        patcher = plain.known_fields(_LMArgs, entropy_args, entropy_source)
    theirs = _blt(known, patcher, rule, state, source)
    return plain.from_fields(BLTConfig, theirs, source), state


check = layout.check
read_parameters = layout.read_parameters


def _blt(
    args: _Args, patcher: _LMArgs | None, rule: dict, state: Mapping[str, Tensor], source: str
) -> dict:
    """Builds the fields of a BLTConfig.

    `rule` holds the `patcher_args` of the entropy model, which take precedence over `args`.
    """
    mode = args.patching_mode or "entropy"
    if mode == "entropy" and patcher is None:
        raise CheckpointError(
            f"{source} needs the entropy model: put its folder {_ENTROPY} in it or next to it"
        )

    def part(key, name, window=None):
        dim, layers, heads = (vars(args)[f"{x}_{key}"] for x in ("dim", "n_layers", "n_heads"))
        return _transformer(args, dim, layers, heads, window, state, f"model.{name}.")

    window = args.local_attention_window_len
    encoder = part("local_encoder", "local_encoder", window)
    decoder = part("local_decoder", "local_decoder", window)
    nheads = args.cross_attn_nheads
    for name, local in (("encoder", encoder), ("decoder", decoder)):
        if nheads not in (None, local["heads"]) or local["kv_heads"] != local["heads"]:
            raise CheckpointError(
                f"{source}: the {name}'s cross-attention has {nheads} heads and as many key heads, "
                f"its self-attention {local['heads']} and {local['kv_heads']}; ours are the same"
            )
    return {
        "encoder": encoder,
        "global_transformer": part("global", "global_transformer"),
        "decoder": decoder,
        "patching": {"mode": mode, **_rule(args, rule)},
        "patcher": patcher and _lm(patcher, state, "model.patcher."),
        "hashing": {
            "groups": list(args.encoder_hash_byte_group_size or ()),
            "vocab": args.encoder_hash_byte_group_vocab,
            "functions": args.encoder_hash_byte_group_nb_functions,
        },
        "patch_vectors": args.cross_attn_k,
        "decoder_cross_attention": "all" if args.cross_attn_all_layers_decoder else "first",
        "mask_documents": True,
        "max_bytes": first(args.max_encoder_seq_length, 24576),
        "vocab_size": args.vocab_size,
    }


def _rule(args: _Args, rule: dict) -> dict:
    """Fields of the patching rule: those in `patcher_args`, or else the model's.

    A null in `patcher_args` is a value for `threshold_add` and `max_patch_length`, where it means
    off, but not for the other fields.
    """
    return {
        "threshold": first(
            rule.get("threshold"), args.patching_threshold, PatchingConfig.threshold
        ),
        "monotonicity": first(rule.get("monotonicity"), args.monotonicity, False),
        "threshold_add": rule.get("threshold_add", args.patching_threshold_add),
        "max_patch_length": rule.get("max_patch_length", args.max_patch_length),
    }


def _lm(args: _LMArgs, state: Mapping[str, Tensor], name: str) -> dict:
    """Builds the fields of a ByteLMConfig."""
    window = args.sliding_window
    return {
        "trunk": _transformer(args, args.dim, args.n_layers, args.n_heads, window, state, name),
        "max_bytes": args.max_seqlen,
        "mask_documents": True,
        "vocab_size": args.vocab_size,
    }


def _transformer(args, dim, layers, heads, window, state, name):
    head_dim = dim // heads if heads > 0 else 0  # the config refuses heads < 1 with a clear error
    keys = _rows(state, f"{name}layers.0.self_attn.k_proj.weight")
    ffn_dim = _rows(state, f"{name}layers.0.mlp.gate_proj.weight")
    return {
        "dim": dim,
        "layers": layers,
        "heads": heads,
        "kv_heads": keys // head_dim if keys and head_dim > 0 else heads,
        "head_dim": head_dim,
        "ffn_dim": first(ffn_dim, 256 * -(-(8 * dim // 3) // 256)),
        "window": window,
        "rope_theta": args.rope_theta,
        "norm_eps": args.norm_eps,
    }


def _rows(state: Mapping[str, Tensor], name: str) -> int | None:
    """Size of the first axis of a tensor, or None if there is no such tensor."""
    return next(iter(state[name].shape), None) if name in state else None


def _state_dict(stored: dict[str, Tensor], args: _Args) -> dict[str, Tensor]:
    """Converts the main model's tensors to transformers' layout.

    The hash tables are concatenated into one.
    """
    state, tables = {}, {}
    for name, tensor in stored.items():
        if table := _HASH_TABLE.fullmatch(name):
            tables[int(table[1])] = tensor
        elif name.startswith("local_decoder.output."):
            state[name.replace("local_decoder.output", "lm_head")] = tensor
        else:
            state[f"model.{_renamed(name)}"] = tensor
    if tables:
        if {tensor.shape[1:] for tensor in tables.values()} != {(args.dim_local_encoder,)}:
            raise CheckpointError(
                f"the tables {_HASHES}.* are not {args.dim_local_encoder} wide; download them again"
            )
        state[f"model.{_HASHES}.weight"] = tensors.concatenate([tables[i] for i in sorted(tables)])
    return state


def _renamed(name):
    return ".".join(_HUGGINGFACE.get(word, word) for word in name.split("."))


def _entropy_model(directory):
    """Finds the folder of the entropy model, in the model's folder or next to it."""
    places = (directory / _ENTROPY, directory.absolute().parent / _ENTROPY)
    return next((folder for folder in places if folder.is_dir()), None)


def _config_file(directory):
    for name in ("config.json", "params.json"):
        if (directory / name).exists():
            return plain.read_json(directory / name), str(directory / name)
    raise CheckpointError(f"{directory} has no config.json or params.json")


def _weights(directory):
    """Opens the tensors of safetensors files, or of consolidated.pth."""
    names = (safetensors_file.SINGLE, safetensors_file.INDEX)
    if any((directory / name).exists() for name in names):
        return safetensors_file.read_directory(directory)
    if (directory / "consolidated.pth").exists():
        return _read_torch(directory / "consolidated.pth")
    raise CheckpointError(f"{directory} has no {safetensors_file.SINGLE} or consolidated.pth")


def _args(fields, keys, source):
    """The model's arguments: the object under the first of `keys`, or the fields themselves."""
    for key in keys:
        if isinstance(fields.get(key), dict):
            return fields[key]
    if "dim" in fields:
        return fields
    raise CheckpointError(f"{source} has no model arguments under {', '.join(keys)}")


def _read_torch(path: pathlib.Path) -> dict[str, Tensor]:
    """Maps the tensors of a `.pth` file into memory without executing any code in the file.

    Raises:
      CheckpointError: torch is not installed, or the file holds no state dict.
    """
    try:
        import torch
    except ImportError:
        raise CheckpointError(
            f"{path} is a PyTorch file: pip install torch to read it, or convert it to safetensors"
        ) from None
    try:
        stored = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception:  # torch raises RuntimeError, UnpicklingError, EOFError, KeyError, ...
        raise CheckpointError(f"{path} is not a PyTorch checkpoint; download it again") from None
    stored = stored.get("model", stored)
    return {name: _tensor(x) for name, x in stored.items() if isinstance(x, torch.Tensor)}


def _tensor(x) -> Tensor:
    import torch

    narrow = x.dtype == torch.bfloat16
    dtype = np.dtype(ml_dtypes.bfloat16 if narrow else str(x.dtype).removeprefix("torch."))

    def rows(start, stop):
        part = x[start:stop].contiguous()
        return (part.view(torch.uint16) if narrow else part).numpy().view(dtype)

    return Tensor(tuple(x.shape), dtype, rows)
