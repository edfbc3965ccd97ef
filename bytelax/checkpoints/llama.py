"""A byte transformer as a Llama, Mistral, Qwen2 or Qwen3 of transformers.

They differ in what their attention has: a window, biases, norms of queries and keys. Their rotary
positions pair the first half of a head with the second, where bytelax pairs neighbours, so the rows
of queries and keys are permuted. Heads for drafting are stored with the model, where transformers
ignores them. See `byte_ids` for models that bytelax did not write.
"""

import dataclasses
import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from bytelax import vocab
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.stack_fields import Defaults, Stack, first, stack_json, transformer
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.byte_lm import ByteLMConfig

_SHARED = {"vocab_size": 32_000, "rms_norm_eps": 1e-6}
_QWEN = {
    **_SHARED,
    "vocab_size": 151_936,
    "intermediate_size": 22_016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
}
MODEL_TYPES: dict[str, dict[str, Any]] = {  # with the defaults of transformers for missing fields
    "llama": {
        **_SHARED,
        "intermediate_size": 11_008,
        "max_position_embeddings": 2048,
        "sliding_window": None,
    },
    "mistral": {
        **_SHARED,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128},
}
_DEFAULTS = Defaults(4096, 32, 32, 10_000.0)
_ROTATED = re.compile(r"layers\.\d+\.self_attn\.([qk]_proj\.(weight|bias)|[qk]_norm\.weight)")
_BIAS = re.compile(r"(?:lm_head|layers\.\d+\.(?:mlp\.\w+|self_attn\.(\w)_proj))\.bias")
_BIASES = {"none": "", "qkv": "qkv", "all": "qkvo"}  # the maps of the attention that have one
_TIED = ("embed_tokens.weight", "lm_head.weight")
_OUTSIDE = ("lm_head.", "heads.")  # names that are not those of `LlamaModel`
_CLASSES = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Fields(Stack):
    """The fields of config.json that are read."""

    model_type: str
    max_position_embeddings: int
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    quantization_config: dict | None = None
    use_sliding_window: bool | None = None
    max_window_layers: int = 28
    layer_types: tuple[str, ...] | None = None
    bos_token_id: Any = vocab.BOS
    eos_token_id: Any = vocab.EOS

    def __post_init__(self):
        super().__post_init__()
        plain.require(
            self,
            mlp_bias=False,
            quantization_config=None,
            bos_token_id=vocab.BOS,
            eos_token_id=vocab.EOS,
        )
        if self.model_type == "llama" and self.sliding_window is not None:
            raise ValueError(
                f"sliding_window is {self.sliding_window}, which a llama does not have: remove it, "
                "or make the model_type mistral"
            )

    @property
    def is_qwen(self) -> bool:
        return self.model_type.startswith("qwen")

    @property
    def window(self) -> int | None:
        """The attention window of all layers."""
        layers, window, start = first(self.num_hidden_layers, _DEFAULTS.layers), None, 0
        if not self.is_qwen or self.use_sliding_window:
            window = self.sliding_window
        if self.is_qwen:
            start = self.max_window_layers
        sliding = 0 if window is None else min(max(layers - start, 0), layers)
        # A Mistral that has this field is a Ministral to transformers.
        if self.layer_types is not None and self.model_type != "llama":
            sliding, full = (self.layer_types.count(f"{x}_attention") for x in ("sliding", "full"))
            if not sliding + full == len(self.layer_types) == layers:
                raise ValueError(
                    f"layer_types must name full_attention or sliding_attention for {layers} layers"
                )
        if sliding and (window is None or sliding < layers):
            raise ValueError(
                f"{sliding} of {layers} layers have a window, of {self.sliding_window}; bytelax "
                "computes with one window in all layers, or with none"
            )
        return window if sliding else None

    @property
    def biases(self) -> str:
        """Which maps of the attention have a bias."""
        if self.model_type == "qwen2":
            return "qkv"
        # A Mistral has no field for them.
        return "all" if self.attention_bias and self.model_type != "mistral" else "none"


def config_fields(fields: Mapping, source: str, tensors: Mapping[str, Tensor]) -> dict:
    """Builds the fields of a ByteLMConfig from those of transformers, without the state dict.

    Raises:
      CheckpointError: a field has a value with which bytelax does not compute.
    """
    c = plain.known_fields(_Fields, {**MODEL_TYPES[fields["model_type"]], **fields}, source)
    try:
        trunk = transformer(c, _DEFAULTS, c.window)
    except ValueError as error:
        raise CheckpointError(f"{source}: {error}") from None
    return {
        "trunk": trunk | {"biases": c.biases, "qk_norm": c.model_type == "qwen3"},
        "max_bytes": c.max_position_embeddings,
        "mask_documents": False,
        "vocab_size": c.vocab_size,
        "heads": None,
        "bos": c.bos_token_id is not None,
        "eos": c.eos_token_id is not None,
    }


def to_config_json(config: ByteLMConfig) -> dict:
    """Converts a config to the fields of config.json that transformers reads."""
    trunk = config.trunk
    kind = "llama" if trunk.window is None else "mistral"
    if trunk.qk_norm:
        kind = "qwen3"
    elif trunk.biases == "qkv":
        kind = "qwen2"
    fields = {
        "architectures": [f"{_CLASSES[kind]}ForCausalLM"],
        **stack_json(trunk, kind, config.max_bytes),
        "vocab_size": config.vocab_size,
        "head_dim": trunk.head_dim,
        "attention_bias": trunk.biases == "all",
        "mlp_bias": False,
        "bos_token_id": vocab.BOS if config.bos else None,
        "eos_token_id": vocab.EOS if config.eos else None,
        "pad_token_id": None,
    }
    if trunk.window is not None:
        fields["sliding_window"] = trunk.window
    if kind.startswith("qwen") and trunk.window is not None:
        fields |= {"use_sliding_window": True, "max_window_layers": 0}
    return {**fields, "bytelax": {}}  # by which its vocabulary is known to be ours


def to_state_dict(config: ByteLMConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames the tensors of a byte transformer, and permutes queries and keys."""
    named = {}
    for name, tensor in state.items():
        if _ROTATED.fullmatch(name):
            tensor = _permuted(tensor, config.trunk.head_dim, apart=True)
        named[name if name.startswith(_OUTSIDE) else f"model.{name}"] = tensor
    return named


def from_state_dict(
    config: ByteLMConfig, state: Mapping[str, Tensor], fields: Mapping, source: str
) -> dict[str, Tensor]:
    """The inverse of `to_state_dict`; names that it does not write stay as they are.

    Warns of biases that the config turns off, and leaves them out as transformers does. With
    `tie_word_embeddings` the embedding and the output layer have the same weights, and the file may
    lack one of them. A file with both is read as it is, as in transformers.
    """
    named, unused = {}, []
    for stored, tensor in state.items():
        name = stored.removeprefix("model.")
        bias = _BIAS.fullmatch(name)
        if bias and (bias[1] or "another") not in _BIASES[config.trunk.biases]:
            unused.append(name)
            continue
        if _ROTATED.fullmatch(name) and tensor.shape:
            tensor = _permuted(tensor, config.trunk.head_dim, apart=False)
        named[name] = tensor
    if unused:
        warnings.warn(
            f"{len(unused)} stored biases, such as {unused[0]}, are left out: the config has none "
            "there, and transformers leaves them out, too",
            stacklevel=2,
        )
    if fields.get("tie_word_embeddings") is True:
        for there, missing in (_TIED, _TIED[::-1]):
            if there in named:
                named.setdefault(missing, named[there])
    return named


def _permuted(tensor: Tensor, head_dim: int, *, apart: bool) -> Tensor:
    """Moves pairs of rows of every head to the head's two halves if `apart`, or back."""
    if tensor.shape[0] % head_dim:
        return tensor  # `layout.check` will refuse it
    split = (head_dim // 2, 2) if apart else (2, head_dim // 2)

    def rows(start, stop):
        heads = tensor.whole().reshape(-1, *split, *tensor.shape[1:])
        return np.swapaxes(heads, 1, 2).reshape(tensor.shape)[start:stop]

    return Tensor(tensor.shape, tensor.dtype, rows)
