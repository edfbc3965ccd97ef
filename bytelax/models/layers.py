"""Parameters with logical axes: linear maps, tables and norms.

The compute dtype is the dtype of the parameters: cast them, and the module follows.
"""

import functools
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from bytelax.models.execution import Execution
from bytelax.models.lookup import rows_of
from bytelax.pods.sharding import DATA, FSDP, Axes

_AXES = "logical_axes"  # the collection that `init` makes beside "params"
_SMALL = nn.initializers.normal(0.02)


@jax.tree_util.register_static
class _Names(tuple):
    """Logical axes as a leaf without data."""


def parameter(module: nn.Module, name: str, init, shape: tuple[int, ...], axes: Axes) -> Array:
    """A parameter of a module, and the logical name of each of its axes; see `pods.sharding`."""
    if module.is_initializing() and not module.has_variable(_AXES, name):
        module.put_variable(_AXES, name, _Names(axes))
    return module.param(name, init, shape)


@functools.lru_cache(maxsize=32)
def logical_axes(module: nn.Module) -> dict:
    """The logical axes of every parameter of a model: a tuple where `params` has an array.

    Raises:
      ValueError: a parameter was not made by `parameter`.
    """
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    variables = jax.eval_shape(module.init, jax.random.key(0), ids)
    named = flax.traverse_util.flatten_dict(variables.get(_AXES, {}))
    for path in flax.traverse_util.flatten_dict(variables["params"]):
        if path not in named:
            raise ValueError(f"the parameter {'/'.join(path)} has no logical axes: see `parameter`")
    return flax.traverse_util.unflatten_dict({path: tuple(x) for path, x in named.items()})


def weights(params: Any) -> int:
    """Number of weights that a pass reads; of embeddings only a few rows are looked up."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    tables = (jax.tree_util.DictKey("embedding"),)
    return sum(x.size for path, x in leaves if path[-1:] != tables)


class Dense(nn.Module):
    """A linear map without bias over the last axes of its input.

    Attributes:
      features: sizes of the output's axes.
      axes: logical axes of the kernel, those that are contracted first.
      precision: of the product.
      init: of the kernel; None: standard deviation 1 / sqrt(fan-in), so that outputs are as large
        as inputs at any width. A fixed 0.02 is several times too little at widths of tens to
        hundreds, and the latents of a small BLT, which pass through many matrices, would die.
    """

    features: tuple[int, ...]
    axes: Axes
    precision: jax.lax.Precision | None = None
    init: nn.initializers.Initializer | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        contracted = len(self.axes) - len(self.features)
        shape = (*x.shape[x.ndim - contracted :], *self.features)
        init = self.init or nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal",
            in_axis=range(contracted), out_axis=range(contracted, len(shape)),
        )  # fmt: skip
        x, kernel = promote_dtype(x, parameter(self, "kernel", init, shape, self.axes))
        over = tuple(range(x.ndim - contracted, x.ndim)), tuple(range(contracted))
        return jax.lax.dot_general(x, kernel, (over, ((), ())), precision=self.precision)


class Embedding(nn.Module):
    """Looks up rows of a table.

    Attributes:
      rows, dim: shape of the table. On a device of `pods.per_device` it may have fewer columns.
      axes: its logical axes.
      execution: see there.
    """

    rows: int
    dim: int
    axes: Axes = ("byte", "embed")
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        if self.is_initializing():
            parameter(self, "embedding", _SMALL, (self.rows, self.dim), self.axes)
        table = self.get_variable("params", "embedding")
        mesh = self.execution.mesh
        return rows_of(table, ids) if mesh is None else lookup(table, ids, mesh=mesh)


def lookup(
    table: Float[Array, "R D"], ids: Int[Array, "B *S"], *, mesh: Mesh
) -> Float[Array, "B *S D"]:
    """`table[ids]`, where each device has some columns of `table` and some rows of `ids`.

    A device looks up its columns for all rows of the devices that it shares the table with, and
    exchanges the results for the other columns of its own rows. Left alone XLA would, beside a
    `data` axis, hold the gradient of the whole table on every device and sum it over all of them.
    """
    rows = PartitionSpec((DATA, FSDP))

    def on_device(table, ids):
        found = rows_of(table, jax.lax.all_gather(ids, FSDP, tiled=True))
        return jax.lax.all_to_all(found, FSDP, 0, found.ndim - 1, tiled=True)

    per_device = jax.shard_map(
        on_device, mesh=mesh, in_specs=(PartitionSpec(None, FSDP), rows), out_specs=rows
    )
    return per_device(table, ids)


class RMSNorm(nn.Module):
    """Root-mean-square norm with float32 statistics."""

    eps: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        scale = parameter(self, "scale", nn.initializers.ones, (x.shape[-1],), ("norm",))
        wide = x.astype(jnp.float32)
        wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + self.eps)
        return wide.astype(x.dtype) * scale


class LayerNorm(nn.Module):
    """Layer norm without a bias, with float32 statistics."""

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        scale = parameter(self, "scale", nn.initializers.ones, (x.shape[-1],), ("norm",))
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        variance = jnp.maximum(0, (wide * wide).mean(-1, keepdims=True) - mean * mean)
        return ((wide - mean) * (jax.lax.rsqrt(variance + 1e-6) * scale)).astype(x.dtype)


def head(vocab: int, precision: jax.lax.Precision | None = None, name: str | None = None) -> Dense:
    """Hidden states to logits, untied."""
    return Dense((vocab,), ("embed", "byte"), precision, _SMALL, name=name)


def project(dim: int, name: str | None = None) -> Dense:
    """A plain linear map."""
    return Dense((dim,), ("embed", None), name=name)
