"""How weights lie in the memory of a TPU, so that products read them as they are.

By default an array lies there in the order of its axes. XLA multiplies by a matrix whose minor axis
fills the 128 lanes, and would copy all kernels with several axes of features at the beginning of
each call of a program: 2 GB of the 1B model.
"""

from typing import Any

import jax
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

from bytelax.models import narrow

_LANES = 128


def for_products(params: Any) -> Any:
    """The parameters of a model on a TPU in their best layouts; elsewhere as they are.

    Args:
      params: of a model. Arrays that are in a good layout already are not copied. Tracers, and
        trees that hold int8, are returned unchanged.
    """
    leaves = jax.tree.leaves(params, is_leaf=narrow.is_int8)
    return relaid(params) if leaves and all(map(_on_tpu, leaves)) else params


def relaid(params: Any) -> Any:
    """As `for_products`, on any platform."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(params)
    places = [place_of(path, x.shape, x.sharding) for path, x in leaves]
    formats = {index: each for index, each in enumerate(places) if isinstance(each, Format)}
    # A program and not `jax.device_put`, because several processes may hold an array.
    place = jax.jit(lambda arrays: arrays, out_shardings=formats)
    moved = place({index: leaves[index][1] for index in formats})
    return jax.tree.unflatten(tree, [moved.get(index, x) for index, (_, x) in enumerate(leaves)])


def place_of(path: tuple, shape: tuple[int, ...], sharding: Sharding) -> Format | Sharding:
    """Where a parameter of this shape belongs: its sharding, and its layout if that is unusual."""
    order = major_to_minor(path, sharding.shard_shape(shape))
    usual = order == tuple(range(len(shape)))
    return sharding if usual else Format(Layout(major_to_minor=order), sharding)


def major_to_minor(path: tuple, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The order of a parameter's axes in memory, the major one first.

    Of a kernel, the axes of features come first. The last of them is the minor axis if it fills the
    lanes, and otherwise the contracted one is.

    Args:
      path: of the parameter in its tree.
      shape: of the part that a device holds.
    """
    names = [getattr(key, "key", None) for key in path[-2:]]
    axes = tuple(range(len(shape)))
    if names[-1] != "kernel":
        return axes
    contracted = 2 if names[0] == "out" and len(shape) == 3 else 1  # heads and their widths
    inputs, features = axes[:contracted], axes[contracted:]
    if shape[-1] % _LANES:
        return features + inputs
    return (*features[:-1], *inputs, features[-1])


def _on_tpu(x):
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return next(iter(x.devices())).platform == "tpu"
