"""Which tensors of a state dict a parameter consists of, for stacks and for linear maps.

Tensor names are those of transformers' `BltForCausalLM`. A state dict stores linear maps as [out,
in]; bytelax stores them as [in, out], with separate axes for heads, and fuses queries, keys and
values (and gate and up) into one array. Hence a `Parameter` consists of one or more `TensorSlice`
objects.
"""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from bytelax.models.configs import TransformerConfig


@dataclasses.dataclass(frozen=True)
class TensorSlice:
    """A tensor of a state dict, and the slice of a parameter that it fills.

    parameter[at] = tensor.reshape(split).transpose(order).

    Attributes:
      name: name in the state dict.
      shape: shape in the state dict.
      split: shape after heads are split into axes of their own.
      order: permutation from the axes of `split` to those of the parameter.
      at: index of the slice in the parameter.
    """

    name: str
    shape: tuple[int, ...]
    split: tuple[int, ...]
    order: tuple[int, ...]
    at: tuple[slice, ...] = ()

    def read(self, tensor: np.ndarray) -> np.ndarray:
        """Converts a tensor of the state dict to the slice of the parameter."""
        return tensor.reshape(self.split).transpose(self.order)

    def write(self, parameter: jax.Array | np.ndarray) -> np.ndarray:
        """Converts the slice of the parameter to the tensor of the state dict."""
        part = np.asarray(parameter[self.at])
        return part.transpose(np.argsort(self.order)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a bytelax model: its shape, and the tensors that it consists of."""

    shape: tuple[int, ...]
    slices: tuple[TensorSlice, ...]

    @property
    def contracted(self) -> tuple[int, ...]:
        """The axes of a linear map that a product sums over."""
        return tuple(range(self.slices[0].order.index(0)))

    @property
    def plain(self) -> bool:
        """Whether the parameter is identical to one tensor of the state dict."""
        part = self.slices[0]
        return part.shape == self.shape and part.order == tuple(range(len(self.shape)))


def trunk(c: TransformerConfig, path: str, name: str) -> dict[str, Parameter]:
    """Parameters of a stack of blocks."""
    table: dict[str, Any] = {}
    for i in range(c.layers):
        block, stored = f"{path}layers_{i}/", f"{name}layers.{i}."
        table |= {
            f"{block}attention_norm/scale": same(f"{stored}input_layernorm", c.dim),
            f"{block}attention/qkv/kernel": _queries_keys_values(c, f"{stored}self_attn."),
            f"{block}attention/out/kernel": linear(
                f"{stored}self_attn.o_proj", (c.heads, c.head_dim), (c.dim,)
            ),
            f"{block}mlp_norm/scale": same(f"{stored}post_attention_layernorm", c.dim),
            f"{block}mlp/gate_up/kernel": _fused(
                (c.dim,), (2, c.ffn_dim), {"gate_proj": (0, 1), "up_proj": (1, 2)}, f"{stored}mlp."
            ),
            f"{block}mlp/down/kernel": linear(f"{stored}mlp.down_proj", (c.ffn_dim,), (c.dim,)),
        }
        if c.biases != "none":
            kernel = table[f"{block}attention/qkv/kernel"]
            table[f"{block}attention/qkv_bias"] = _bias_of(kernel)
        if c.biases == "all":
            table[f"{block}attention/out_bias"] = _bias_of(table[f"{block}attention/out/kernel"])
        if c.qk_norm:
            for ours, theirs in (("query", "q_norm"), ("key", "k_norm")):
                path_of_norm = f"{block}attention/{ours}_norm/scale"
                table[path_of_norm] = same(f"{stored}self_attn.{theirs}", c.head_dim)
    return table


def cross(c: TransformerConfig, path: str, name: str) -> dict[str, Parameter]:
    """Parameters of a cross-attention."""
    return {
        f"{path}query_norm/scale": same(f"{name}q_norm", c.dim),
        f"{path}key_norm/scale": same(f"{name}k_norm", c.dim),
        f"{path}query/kernel": linear(f"{name}q_proj", (c.dim,), (c.heads, c.head_dim)),
        f"{path}key_value/kernel": _fused(
            (c.dim,), (2, c.kv_heads, c.head_dim), {"k_proj": (0, 1), "v_proj": (1, 2)}, name
        ),
        f"{path}out/kernel": linear(f"{name}o_proj", (c.heads, c.head_dim), (c.dim,)),
    }


def _queries_keys_values(c: TransformerConfig, name: str):
    """The fused kernel [D, K, G + 2, hd]: each key head with its G queries, its key, its value."""
    group = c.heads // c.kv_heads
    places = {"q_proj": (0, group), "k_proj": (group, group + 1), "v_proj": (group + 1, group + 2)}
    return _fused((c.dim,), (c.kv_heads, group + 2, c.head_dim), places, name, axis=1)


def _fused(inputs, outputs, places, name, *, axis=0):
    """Linear maps concatenated along an output axis; `places` gives the range of each tensor."""
    parts = []
    for tensor, (start, stop) in places.items():
        own = (*outputs[:axis], stop - start, *outputs[axis + 1 :])
        (part,) = linear(f"{name}{tensor}", inputs, own).slices
        at = (*[slice(None)] * (len(inputs) + axis), slice(start, stop))
        parts.append(dataclasses.replace(part, at=at))
    return Parameter((*inputs, *outputs), tuple(parts))


def linear(name: str, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Parameter:
    """A linear map, stored as [out, in] in the state dict and as [*inputs, *outputs] in bytelax."""
    split = (*outputs, *inputs)
    order = (*range(len(outputs), len(split)), *range(len(outputs)))
    shape = (math.prod(outputs), math.prod(inputs))
    return Parameter((*inputs, *outputs), (TensorSlice(f"{name}.weight", shape, split, order),))


def _bias_of(kernel):
    """The bias of a linear map, from the table's entry of its kernel."""
    inputs, parts = len(kernel.contracted), []
    for part in kernel.slices:
        outputs = part.split[: len(part.split) - inputs]
        name, order = f"{part.name.removesuffix('weight')}bias", tuple(range(len(outputs)))
        parts.append(TensorSlice(name, part.shape[:1], outputs, order, part.at[inputs:]))
    return Parameter(kernel.shape[inputs:], tuple(parts))


def same(name: str, *shape: int) -> Parameter:
    """A parameter that is stored as it is."""
    return Parameter(
        shape, (TensorSlice(f"{name}.weight", shape, shape, tuple(range(len(shape)))),)
    )
