"""The fields by which transformers describes a stack of blocks: of a Llama, or of a part of a BLT.

Every field that changes what transformers computes is read here. It becomes a field of a
`TransformerConfig`, or it must have the value with which bytelax computes, and is refused by name
if it has another.
"""

import dataclasses
from typing import NamedTuple

from bytelax.checkpoints import config as plain
from bytelax.checkpoints.tensors import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rope:
    """The rotary parameters: `rope_parameters`, or `rope_scaling` in older files."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None

    def __post_init__(self):
        kind = self.rope_type or self.type or "default"
        if kind != "default":
            raise ValueError(f"{kind!r} rotary positions are not supported; only 'default' works")


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
    max_position_embeddings: int | None = None
    vocab_size: int = 260
    hidden_act: str | None = None
    is_causal: bool | None = None
    per_layer_config: dict | None = None

    def __post_init__(self):
        for name in ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"):
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        plain.require(self, hidden_act="silu", is_causal=True, per_layer_config=None)

    def theta(self, default: float) -> float:
        """The base of the rotary frequencies; like transformers, by `rope_scaling` if it is set."""
        rope = self.rope_parameters if self.rope_scaling in (None, Rope()) else self.rope_scaling
        return first((rope or Rope()).rope_theta, self.rope_theta, default)


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
        "rope_theta": c.theta(defaults.theta),
        "norm_eps": first(c.rms_norm_eps, c.norm_eps),
    }


def first(*values):
    """The first value that is not None."""
    return next(value for value in values if value is not None)
