"""A byte transformer as transformers' `LlamaForCausalLM`, or `MistralForCausalLM` with a window.

The two compute the same but for the attention window. Their rotary positions pair the first half
of a head with the second, where bytelax pairs neighbours, so the rows of queries and keys are
permuted. Heads for drafting are stored beside the model, where transformers ignores them.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bytelax import vocab
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.stack_fields import Defaults, Stack, transformer
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.byte_lm import ByteLMConfig

_SHARED = {"vocab_size": 32_000, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0}
MODEL_TYPES: dict[
    str, dict[str, Any]
] = {  # and what transformers takes for fields that a config leaves out
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
}
_DEFAULTS = Defaults(4096, 32, 32)
_ROTATED = re.compile(r"layers\.\d+\.self_attn\.[qk]_proj\.weight")
_OUTSIDE = ("lm_head.", "heads.")  # names that are not those of `LlamaModel`


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Fields(Stack):
    """The fields of config.json that are read."""

    model_type: str
    max_position_embeddings: int
    attention_bias: bool | None = None
    mlp_bias: bool | None = None
    tie_word_embeddings: bool | None = None
    quantization_config: dict | None = None
    bos_token_id: Any = None
    eos_token_id: Any = None
    bytelax: dict | None = None

    def __post_init__(self):
        if self.bytelax is None:
            raise ValueError(
                f"a {self.model_type} without the object 'bytelax' is perhaps not of bytes; if its "
                'ids are those of bytelax.vocab, add "bytelax": {}'
            )
        super().__post_init__()
        plain.require(
            self,
            attention_bias=False,
            mlp_bias=False,
            tie_word_embeddings=False,
            quantization_config=None,
            bos_token_id=vocab.BOS,
            eos_token_id=vocab.EOS,
        )
        if self.model_type == "llama" and self.sliding_window is not None:
            raise ValueError(
                f"sliding_window is {self.sliding_window}, which a llama does not have: remove it, "
                "or make the model_type mistral"
            )


def config_fields(fields: Mapping, source: str) -> dict:
    """Builds the fields of a ByteLMConfig from those of transformers.

    Args:
      fields: the JSON object.
      source: name of config.json in error messages.

    Raises:
      ConfigError: a field has a value with which bytelax does not compute, or there is no object
        "bytelax", which tells that the ids are ours.
    """
    c = plain.known_fields(_Fields, {**MODEL_TYPES[fields["model_type"]], **fields}, source)
    return {
        "trunk": transformer(c, _DEFAULTS, c.sliding_window),
        "max_bytes": c.max_position_embeddings,
        "mask_documents": False,
        "vocab_size": c.vocab_size,
        "heads": None,
    }


def to_config_json(config: ByteLMConfig) -> dict:
    """Converts a config to the fields of config.json that transformers reads."""
    trunk = config.trunk
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": trunk.dim,
        "num_hidden_layers": trunk.layers,
        "num_attention_heads": trunk.heads,
        "num_key_value_heads": trunk.kv_heads,
        "head_dim": trunk.head_dim,
        "intermediate_size": trunk.ffn_dim,
        "hidden_act": "silu",
        "rms_norm_eps": trunk.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": trunk.rope_theta},
        "max_position_embeddings": config.max_bytes,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "bos_token_id": vocab.BOS,
        "eos_token_id": vocab.EOS,
        "pad_token_id": None,
    }
    if trunk.window is None:
        return fields
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral"}
    return {**fields, **mistral, "sliding_window": trunk.window}


def to_state_dict(config: ByteLMConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames the tensors of a byte transformer, and permutes queries and keys."""
    named = {}
    for name, tensor in state.items():
        if _ROTATED.fullmatch(name):
            tensor = _permuted(tensor, config.trunk.head_dim, apart=True)
        named[name if name.startswith(_OUTSIDE) else f"model.{name}"] = tensor
    return named


def from_state_dict(config: ByteLMConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_state_dict`; names that it does not write stay as they are."""
    named = {}
    for stored, tensor in state.items():
        name = stored.removeprefix("model.")
        if _ROTATED.fullmatch(name) and len(tensor.shape) == 2:
            tensor = _permuted(tensor, config.trunk.head_dim, apart=False)
        named[name] = tensor
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
