"""The fields by which transformers describes a stack of blocks: of a Llama, or of a part of a BLT.

Every field that changes what transformers computes is read here. It becomes a field of a
`TransformerConfig`, or it must have the value with which bytelax computes, and is refused by name
if it has another.
"""

import dataclasses
from typing import NamedTuple

from bytelax.checked import check_least
from bytelax.checkpoints import config as plain
from bytelax.checkpoints.tensors import Tensor
from bytelax.models.configs import RopeScaling, TransformerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """The rotary parameters: `rope_parameters`, or `rope_scaling` in older files."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    partial_rotary_factor: float | None = None
    factor: float | None = None
    original_max_position_embeddings: int | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    full_attention: dict | None = None
    sliding_attention: dict | None = None

    def __post_init__(self):
        plain.require(self, partial_rotary_factor=1.0, full_attention=None, sliding_attention=None)
        if self.kind not in ("default", *_SCALED):
            known = ", ".join(_SCALED)
            raise ValueError(
                f"{self.kind!r} rotary positions are not supported; default, {known} are"
            )
        for name in _SCALED.get(self.kind, ()):
            if vars(self)[name] is None:
                raise ValueError(f"{self.kind!r} rotary positions need {name}")

    @property
    def kind(self) -> str:
        """The name of the frequencies."""
        return self.rope_type or self.type or "default"

    def scaling(self, positions: int | None, original: int | None) -> dict | None:
        """Builds the fields of a RopeScaling; None if there is none.

        Args:
          positions: `max_position_embeddings`, the default of the original ones.
          original: `original_max_position_embeddings` of the stack, which replaces the rope's own.
        """
        if self.kind == "default":
            return None
        fields = {**_UNSCALED, "kind": self.kind}
        if self.kind == "llama3":
            own = self.original_max_position_embeddings
            fields["original_positions"] = first(original, own, positions, 2048)
        return fields | {name: vars(self)[name] for name in _SCALED[self.kind]}


# Kinds of scaling, and the fields of `Rope` and of RopeScaling that each needs.
_SCALED = {"linear": ("factor",), "llama3": ("factor", "low_freq_factor", "high_freq_factor")}
_UNSCALED = plain.to_fields(RopeScaling(kind="linear", factor=1.0))


def stack_json(c: TransformerConfig, model_type: str, max_bytes: int) -> dict:
    """The fields of a stack, as transformers 5.24 writes them."""
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
        "rope_parameters": _rope_json(c),
        "tie_word_embeddings": False,
    }


def _rope_json(c):
    if c.rope_scaling is None:
        return {"rope_type": "default", "rope_theta": c.rope_theta}
    fields = {name: vars(c.rope_scaling)[name] for name in _SCALED[c.rope_scaling.kind]}
    if c.rope_scaling.kind == "llama3":
        fields["original_max_position_embeddings"] = c.rope_scaling.original_positions
    return {"rope_type": c.rope_scaling.kind, "rope_theta": c.rope_theta, **fields}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stack:
    """The fields of one stack. None stands for the default of the class in transformers."""

    hidden_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    intermediate_size: int | None = None
    rms_norm_eps: float | None = None
    norm_eps: float = 1e-5
    rope_parameters: Rope | None = None
    rope_scaling: Rope | None = None
    rope_theta: float | None = None
    sliding_window: int | None = None
    partial_rotary_factor: float | None = None
    max_position_embeddings: int | None = None
    original_max_position_embeddings: int | None = None
    vocab_size: int = 260
    hidden_act: str | None = None
    is_causal: bool | None = None
    per_layer_config: dict | None = None

    def __post_init__(self):
        sizes = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        check_least(self, 1, *sizes)
        plain.require(self, is_causal=True, per_layer_config=None, partial_rotary_factor=1.0)
        if self.hidden_act != "swish":  # another name of the same function
            plain.require(self, hidden_act="silu")

    @property
    def rope(self) -> Rope:
        """The rotary parameters; like transformers, by `rope_scaling` if it is set."""
        rope = self.rope_parameters if self.rope_scaling in (None, Rope()) else self.rope_scaling
        return rope or Rope()


class Defaults(NamedTuple):
    """Default sizes of a stack whose config leaves them out."""

    dim: int
    layers: int
    heads: int
    theta: float = 500_000.0


def transformer(
    c: Stack, defaults: Defaults, window: int | None, gate: Tensor | None = None
) -> dict:
    """Builds the fields of a TransformerConfig.

    Args:
      c: the fields of the stack.
      defaults: sizes that it leaves out.
      window: its attention window.
      gate: a tensor from which a hidden width is taken that the stack leaves out.
    """
    dim, heads = first(c.hidden_size, defaults.dim), first(c.num_attention_heads, defaults.heads)
    stored = gate.shape[0] if gate and gate.shape else 256 * -(-(8 * dim // 3) // 256)
    return {
        "dim": dim,
        "layers": first(c.num_hidden_layers, defaults.layers),
        "heads": heads,
        "kv_heads": first(c.num_key_value_heads, heads),
        "head_dim": first(c.head_dim, dim // heads),
        "ffn_dim": first(c.intermediate_size, stored),
        "window": window,
        "rope_theta": first(c.rope.rope_theta, c.rope_theta, defaults.theta),
        "norm_eps": first(c.rms_norm_eps, c.norm_eps),
        "biases": "none",
        "qk_norm": False,
        "rope_scaling": c.rope.scaling(
            c.max_position_embeddings, c.original_max_position_embeddings
        ),
    }


def first(*values):
    """The first value that is not None."""
    return next(value for value in values if value is not None)
