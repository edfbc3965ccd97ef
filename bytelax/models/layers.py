"""Basic layers whose parameters carry logical axes: linear maps, embeddings and norms.

Modules have no `dtype` option. They compute in the dtype of their parameters, so casting the
parameters changes the compute dtype.
"""

import functools
import math
from typing import Any

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from bytelax_kernels.dense import normalized
from jaxtyping import Array, Float, Int

from bytelax import vocab
from bytelax.models.execution import Execution
from bytelax.pods.sharding import Axes

_AXES = "logical_axes"  # a variable collection that `init` creates next to "params"
_SMALL = nn.initializers.normal(0.02)


@jax.tree_util.register_static
class _Names(tuple):
    """Logical axis names as a static pytree node, so that `jax.eval_shape` accepts them."""


def parameter(module: nn.Module, name: str, init, shape: tuple[int, ...], axes: Axes) -> Any:
    """Creates a module parameter and records the logical name of each of its axes.

    See `pods.sharding` for how logical axes are mapped to a mesh. A parameter that is given is
    returned as it is stored: an array, or what `models.fused` multiplies by.
    """
    if module.is_initializing() and not module.has_variable(_AXES, name):
        module.put_variable(_AXES, name, _Names(axes))
    held: Any = module.get_variable("params", name)
    if held is not None and held.shape == shape:
        return held  # `Module.param` would trace `init` again only to compare the shapes
    return module.param(name, init, shape)


@functools.lru_cache(maxsize=32)
def logical_axes(module: nn.Module) -> dict:
    """The logical axes of every parameter of a model.

    Returns:
      A tree with the structure of `params`, with a tuple of axis names in place of each array.

    Raises:
      ValueError: a parameter was not made by `parameter`.
    """
    ids = jax.ShapeDtypeStruct((1, 8), jnp.int32)
    return axes_of(jax.eval_shape(module.init, jax.eval_shape(jax.random.key, 0), ids))


def axes_of(variables: Any) -> dict:
    """The logical axes of parameters, from what `init` of their module returns; see above."""
    named = flax.traverse_util.flatten_dict(variables.get(_AXES, {}))
    for path in flax.traverse_util.flatten_dict(variables["params"]):
        if path not in named:
            raise ValueError(f"the parameter {'/'.join(path)} has no logical axes: see `parameter`")
    return flax.traverse_util.unflatten_dict({path: tuple(x) for path, x in named.items()})


def weights(params: Any) -> int:
    """Number of weights that a pass reads.

    Embedding tables are not counted, since a pass looks up only a few of their rows.
    """
    # Kernels in int8 and in panels are trees of arrays, which have a shape themselves.
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=lambda x: hasattr(x, "shape"))
    tables = (jax.tree_util.DictKey("embedding"),)
    return sum(math.prod(x.shape) for path, x in leaves if path[-1:] != tables)


class Dense(nn.Module):
    """A linear map without bias that contracts the last axes of its input.

    Attributes:
      features: sizes of the new axes of the output.
      axes: logical axes of the kernel: the contracted axes first, then those of `features`.
      execution: how the product runs.
      init: initializer of the kernel. None uses a standard deviation of 1 / sqrt(fan-in), which
        keeps the scale of activations at any width. A fixed 0.02 is several times too small for
        widths of tens to hundreds, and the latents of a small BLT, which pass through many
        matrices, would vanish.
    """

    features: tuple[int, ...]
    axes: Axes
    execution: Execution = Execution()
    # The name hides `Module.init`: layers are only initialized as parts of a model.
    init: nn.initializers.Initializer | None = None  # type: ignore[assignment]

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Contracts the last axes of `x` with the kernel, and appends the axes of `features`."""
        contracted = len(self.axes) - len(self.features)
        shape = (*x.shape[x.ndim - contracted :], *self.features)
        init = self.init or _by_fan_in(contracted, len(self.axes))
        kernel = parameter(self, "kernel", init, shape, self.axes)
        return self.execution.product(x, kernel, contracted)


def _by_fan_in(contracted, axes):
    places = {"in_axis": range(contracted), "out_axis": range(contracted, axes)}
    return nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal", **places)


class Embedding(nn.Module):
    """Looks up rows of an embedding table.

    Attributes:
      rows, dim: shape of the table. Inside `pods.sharding.spread` a device may hold fewer
        columns.
      axes: logical axes of the table.
      execution: how the lookup runs; see `Execution`.
    """

    rows: int
    dim: int
    axes: Axes = ("byte", "embed")
    execution: Execution = Execution()

    @nn.compact
    def __call__(self, ids: Int[Array, "*B"]) -> Float[Array, "*B D"]:
        """Looks up the rows of the given ids."""
        if self.is_initializing():
            parameter(self, "embedding", _SMALL, (self.rows, self.dim), self.axes)
        return self.execution.rows_of(self.get_variable("params", "embedding"), ids)


class RMSNorm(nn.Module):
    """Root-mean-square normalization (arXiv 1910.07467) with float32 statistics."""

    eps: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Normalizes the last axis of `x` and multiplies it by a learned scale."""
        scale = parameter(self, "scale", nn.initializers.ones, (x.shape[-1],), ("norm",))
        return normalized(x, scale, eps=self.eps)


class LayerNorm(nn.Module):
    """Layer normalization (arXiv 1607.06450) without a bias, with float32 statistics."""

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Normalizes and scales the last axis of `x`; the result has the dtype of `x`."""
        scale = parameter(self, "scale", nn.initializers.ones, (x.shape[-1],), ("norm",))
        wide = x.astype(jnp.float32)
        mean = wide.mean(-1, keepdims=True)
        variance = jnp.maximum(0, (wide * wide).mean(-1, keepdims=True) - mean * mean)
        return ((wide - mean) * (jax.lax.rsqrt(variance + 1e-6) * scale)).astype(x.dtype)


def head(vocab: int, execution: Execution, name: str | None = None) -> Dense:
    """An output layer from hidden states to logits over `vocab` ids, not tied to an embedding."""
    return Dense((vocab,), ("embed", "byte"), execution, _SMALL, name=name)


def project(dim: int, execution: Execution, name: str | None = None) -> Dense:
    """A linear map to `dim` features that is sharded over its input axis only."""
    return Dense((dim,), ("embed", None), execution, name=name)


def with_specials(logits: Float[Array, "*B N"]) -> Float[Array, "*B V"]:
    """Extends logits over byte values to logits over ids; special ids get -inf."""
    pad = [(0, 0)] * (logits.ndim - 1) + [(vocab.OFFSET, 0)]
    return jnp.pad(logits, pad, constant_values=-jnp.inf)


def only_bytes(logits: Float[Array, "*B V"]) -> Float[Array, "*B V"]:
    """Sets the logits of special ids to -inf."""
    return with_specials(logits[..., vocab.OFFSET :])
