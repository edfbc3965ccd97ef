"""Basic layers whose parameters carry logical axes: linear maps, embeddings and norms.

Modules have no `dtype` option. They compute in the dtype of their parameters, so casting the
parameters changes the compute dtype.
"""

import functools
import math
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp
from bytelax_kernels import dispatch
from bytelax_kernels.dense import Operands, added, dense, fuses, normalized
from flax.linen.dtypes import promote_dtype
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from bytelax.models import narrow
from bytelax.models.execution import Execution
from bytelax.models.lookup import rows_of
from bytelax.pods.sharding import DATA, FSDP, Axes

_AXES = "logical_axes"  # a variable collection that `init` creates next to "params"
# A matrix product of fewer rows than this leaves the matrix units. Reading the weights takes longer
# than multiplying them, so further rows are free.
_LEAST_ROWS = {"tpu": 8, "gpu": 8}
_SMALL = nn.initializers.normal(0.02)


@jax.tree_util.register_static
class _Names(tuple):
    """Logical axis names as a static pytree node, so that `jax.eval_shape` accepts them."""


def parameter(module: nn.Module, name: str, init, shape: tuple[int, ...], axes: Axes) -> Array:
    """Creates a module parameter and records the logical name of each of its axes.

    See `pods.sharding` for how logical axes are mapped to a mesh.
    """
    if module.is_initializing() and not module.has_variable(_AXES, name):
        module.put_variable(_AXES, name, _Names(axes))
    held: Array | None = module.get_variable("params", name)
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
    variables = jax.eval_shape(module.init, jax.eval_shape(jax.random.key, 0), ids)
    named = flax.traverse_util.flatten_dict(variables.get(_AXES, {}))
    for path in flax.traverse_util.flatten_dict(variables["params"]):
        if path not in named:
            raise ValueError(f"the parameter {'/'.join(path)} has no logical axes: see `parameter`")
    return flax.traverse_util.unflatten_dict({path: tuple(x) for path, x in named.items()})


def weights(params: Any) -> int:
    """Number of weights that a pass reads.

    Embedding tables are not counted, since a pass looks up only a few of their rows.
    """
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=narrow.is_int8)
    tables = (jax.tree_util.DictKey("embedding"),)
    return sum(math.prod(x.shape) for path, x in leaves if path[-1:] != tables)


class Normed(NamedTuple):
    """Hidden states and the RMSNorm that the product they enter has to apply.

    Attributes:
      x: hidden states before the norm.
      scale: scale of the norm.
      eps: added to the mean square.
    """

    x: Float[Array, "*B D"]
    scale: Float[Array, " D"]
    eps: float

    @property
    def array(self) -> Float[Array, "*B D"]:
        """The normalized hidden states."""
        return normalized(self.x, self.scale, eps=self.eps)


class Dense(nn.Module):
    """A linear map without bias that contracts the last axes of its input.

    Attributes:
      features: sizes of the new axes of the output.
      axes: logical axes of the kernel: the contracted axes first, then those of `features`.
      precision: precision of the product.
      init: initializer of the kernel. None uses a standard deviation of 1 / sqrt(fan-in), which
        keeps the scale of activations at any width. A fixed 0.02 is several times too small for
        widths of tens to hundreds, and the latents of a small BLT, which pass through many
        matrices, would vanish.
    """

    features: tuple[int, ...]
    axes: Axes
    precision: jax.lax.Precision | None = None
    # The name hides `Module.init`: layers are only initialized as parts of a model.
    init: nn.initializers.Initializer | None = None  # type: ignore[assignment]

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "..."] | Normed,
        *,
        onto: Float[Array, "..."] | None = None,
        times: int = 1,
        gated: bool = False,
    ) -> Float[Array, "..."]:
        """Contracts the last axes of `x` with the kernel, and appends the axes of `features`.

        On a GPU, a product of few rows is one operation with the norm before it and with what
        follows it; see `bytelax_kernels.dense`.

        Args:
          x: the input. That of a `Normed` is normalized first.
          onto: what the product is added to; None adds nothing.
          times: how many times it is added.
          gated: whether the first of `features` is a pair, of which `silu(gate) * other` remains.
        """
        norm = x if isinstance(x, Normed) else None
        inputs: Array = x.x if isinstance(x, Normed) else x
        contracted = len(self.axes) - len(self.features)
        leading = inputs.shape[: inputs.ndim - contracted]
        shape = (*inputs.shape[len(leading) :], *self.features)
        init = self.init or nn.initializers.variance_scaling(
            1.0, "fan_in", "truncated_normal",
            in_axis=range(contracted), out_axis=range(contracted, len(shape)),
        )  # fmt: skip
        kernel: Any = self.get_variable("params", "kernel")
        if not isinstance(kernel, narrow.Int8):
            kernel = parameter(self, "kernel", init, shape, self.axes)
        if dispatch.platform() == "gpu" and not isinstance(kernel, narrow.Int8):
            rows = math.prod(leading)
            operands = Operands(
                rows=inputs.reshape(rows, math.prod(shape[:contracted])),
                kernel=kernel.reshape(-1, math.prod(self.features)),
                scale=None if norm is None else norm.scale,
                onto=None if onto is None else onto.reshape(rows, onto.shape[-1]),
            )
            if fuses(operands):
                out = dense(
                    **operands._asdict(),
                    eps=0.0 if norm is None else norm.eps,
                    times=times,
                    gated=gated,
                    precision=self.precision,
                )
                return out.reshape(*leading, *(self.features[1:] if gated else self.features))
        out = self._product(inputs if norm is None else norm.array, kernel, leading)
        if gated:
            gate, other = (
                jax.lax.index_in_dim(out, index, len(leading), keepdims=False) for index in (0, 1)
            )
            out = nn.silu(gate) * other
        return added(out, onto, times=times)

    def _product(self, x, kernel, leading):
        contracted = x.ndim - len(leading)
        copies = -(-_LEAST_ROWS.get(dispatch.platform(), 1) // max(math.prod(leading), 1))
        if copies > 1:
            x = jnp.broadcast_to(x, (copies, *x.shape))
        if isinstance(kernel, narrow.Int8) or kernel.dtype == jnp.uint16:
            leading, features = x.shape[: x.ndim - contracted], math.prod(self.features)
            matrix = jax.tree.map(lambda part: part.reshape(-1, features), kernel)
            out = narrow.product(x.reshape(*leading, -1), matrix, precision=self.precision)
            out = out.reshape(*leading, *self.features)
        else:
            x, wide = promote_dtype(x, kernel)
            over = tuple(range(x.ndim - contracted, x.ndim)), tuple(range(contracted))
            out = jax.lax.dot_general(x, wide, (over, ((), ())), precision=self.precision)
        return out if copies == 1 else out[0]


class Embedding(nn.Module):
    """Looks up rows of an embedding table.

    Attributes:
      rows, dim: shape of the table. Inside `pods.per_device.spread` a device may hold fewer
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
        table: Array | narrow.Int8 = self.get_variable("params", "embedding")
        if isinstance(table, narrow.Int8):
            return table.rows(ids)
        mesh = self.execution.mesh
        return rows_of(table, ids) if mesh is None else lookup(table, ids, mesh=mesh)


def lookup(
    table: Float[Array, "R D"], ids: Int[Array, "B *S"], *, mesh: Mesh
) -> Float[Array, "B *S D"]:
    """Computes `table[ids]` with the columns of `table` and the rows of `ids` sharded over `mesh`.

    Each device looks up its columns for the rows of every device along the `fsdp` axis, and an
    all-to-all exchanges the results for the remaining columns of its own rows. Without this, XLA
    would materialize the gradient of the whole table on every device as soon as there is a `data`
    axis, and sum it over all of them.
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
    """Root-mean-square normalization (arXiv 1910.07467) with float32 statistics."""

    eps: float

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Normalizes the last axis of `x` and multiplies it by a learned scale."""
        return self.before(x).array

    @nn.compact
    def before(self, x: Float[Array, "*B D"]) -> Normed:
        """The norm of `x` in front of a `Dense`, which applies it."""
        scale = parameter(self, "scale", nn.initializers.ones, (x.shape[-1],), ("norm",))
        return Normed(x, scale, self.eps)


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


def head(vocab: int, precision: jax.lax.Precision | None = None, name: str | None = None) -> Dense:
    """An output layer from hidden states to logits over `vocab` ids, not tied to an embedding."""
    return Dense((vocab,), ("embed", "byte"), precision, _SMALL, name=name)


def project(dim: int, name: str | None = None) -> Dense:
    """A linear map to `dim` features that is sharded over its input axis only."""
    return Dense((dim,), ("embed", None), name=name)
