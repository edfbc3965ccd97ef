"""Decoding on a mesh: every device runs the loop itself, on its rows and its part of the weights.

The rows of a batch never speak to one another, and so neither do devices with different rows: each
loops until its own rows have ended. Devices that share their rows hold some heads and hidden units
of every layer each, and sum what those add to the hidden states. From equal sums they draw equal
conclusions, and so take equally many rounds.
"""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
from jax.sharding import Mesh, PartitionSpec

from bytelax import sharding
from bytelax.models.blt import BLT
from bytelax.models.byte_lm import ByteLM
from bytelax.models.layers import Embedding, TransformerConfig
from bytelax.sharding import DATA, DECODE_RULES, FSDP, TENSOR

Kind = Literal["params", "rows", "same"]  # of an argument of `spread`


def part_of(module: BLT | ByteLM, mesh: Mesh) -> BLT | ByteLM:
    """What one device runs of a model: its share of the heads and hidden units of every layer.

    The entropy model is whole on every device. For use within `spread`.
    """
    c = module.config

    def share(stack: TransformerConfig) -> TransformerConfig:
        sizes = {name: getattr(stack, name) for name in ("heads", "kv_heads", "ffn_dim")}
        parts = mesh.shape[TENSOR]
        return dataclasses.replace(stack, **{name: size // parts for name, size in sizes.items()})

    stacks = ("encoder", "global_transformer", "decoder") if isinstance(module, BLT) else ("trunk",)
    shares = {name: share(getattr(c, name)) for name in stacks}
    return module.clone(config=dataclasses.replace(c, **shares))


def spread(function: Callable, mesh: Mesh, kinds: tuple[Kind, ...], *args: Any) -> Any:
    """Calls a function on every device of a mesh, each with its part of the arguments.

    Args:
      function: of pytrees of arrays. Its modules are from `part_of`; whatever it returns has the
        batch as its first axis.
      mesh: from `sharding.make_mesh`.
      kinds: of each argument: "params", "rows" where the batch is the first axis, "same" for what
        every device has a copy of.
      *args: arrays on the mesh.

    Raises:
      ValueError: the heads, hidden units or rows do not divide evenly.
    """
    specs = tuple(_specs(kind, arg, mesh) for kind, arg in zip(kinds, args, strict=True))
    shared = mesh.shape[TENSOR] > 1

    def part(*args):
        with nn.intercept_methods(_joined) if shared else contextlib.nullcontext():
            return function(*args)

    def over_devices(out_specs):
        return jax.shard_map(part, mesh=mesh, in_specs=specs, out_specs=out_specs, check_vma=False)

    # The form of the result, which its specs have, is known only once the function was traced.
    form = jax.eval_shape(over_devices(PartitionSpec()), *args)
    return over_devices(sharding.state_specs(form))(*args)


def part_index() -> jax.Array:
    """Within `spread`: which part of the batch this device has, from 0."""
    return jax.lax.axis_index((DATA, FSDP))


def _specs(kind, arg, mesh):
    if kind == "params":
        places = sharding.shardings(arg, mesh, DECODE_RULES)
        return jax.tree.map(lambda place: place.spec, places)
    return sharding.state_specs(arg) if kind == "rows" else PartitionSpec()


def _joined(call, args, keywords, context):
    """A Flax interceptor, so that the models need not know that they run in parts.

    A product over an axis that is split gives each device a part of the sum; a table of which each
    device has some of the width, a part of every row.
    """
    module, out = context.module, call(*args, **keywords)
    if context.method_name != "__call__":
        return out
    if isinstance(module, nn.DenseGeneral):
        inputs = 1 if isinstance(module.axis, int) else len(module.axis)
        axes = sharding.logical_axes("/".join((*module.path, "kernel")))[:inputs]
        return jax.lax.psum(out, TENSOR) if _are_split(axes) else out
    if isinstance(module, Embedding):
        axes = sharding.logical_axes("/".join((*module.path, "embedding")))[1:]
        gather = _are_split(axes)
        return jax.lax.all_gather(out, TENSOR, axis=out.ndim - 1, tiled=True) if gather else out
    return out


def _are_split(axes):
    return any(DECODE_RULES[axis] == TENSOR for axis in axes if axis)
