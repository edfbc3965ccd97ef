"""How weights lie in memory, so that products read them as they are.

On a TPU an array lies by default in the order of its axes. XLA multiplies by a matrix whose minor
axis fills the 128 lanes, and would copy all kernels with several axes of features at the beginning
of each call of a program: 2 GB of the 1B model. On a processor the compiled kernels read panels.
"""

from typing import Any

import jax
import numpy as np
import psutil
from bytelax_kernels import native
from bytelax_kernels.dense.cpu import DTYPES, Panels
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

from bytelax.models import narrow

_LANES = 128


def for_products(params: Any) -> Any:
    """The parameters of a model in their best layouts for the device that holds them.

    Args:
      params: of a model. Arrays that are in a good layout already are not copied. Tracers,
        parameters on several processors, and those for whose copy there is no room are unchanged,
        and so is int8 on accelerators.
    """
    leaves = jax.tree.leaves(params, is_leaf=narrow.is_int8)
    if leaves and all(_on("tpu", x) for x in leaves):
        return relaid(params)
    leaves = jax.tree.leaves(params)
    alone = all(_on("cpu", x) and len(x.devices()) == 1 for x in leaves)
    if not (leaves and alone and native.available()):
        return params
    # The model keeps its own arrays. What decodes needs memory too, so half of it stays free.
    copied = sum(
        x.nbytes
        for path, x in jax.tree_util.tree_leaves_with_path(params)
        if jax.tree_util.DictKey("kernel") in path
    )
    return in_panels(params) if 2 * copied <= psutil.virtual_memory().available else params


def in_panels(params: Any) -> Any:
    """The parameters with every kernel as the compiled product reads it."""

    def laid(path, x):
        names = [getattr(key, "key", None) for key in path[-2:]]
        values = x.values if narrow.is_int8(x) else x
        if names[-1] != "kernel" or values.dtype.name not in DTYPES:
            return x
        (device,) = values.devices()
        panels = Panels.of(
            np.asarray(values),
            contracted=_contracted(path, x.shape),
            gated=names[0] == "gate_up",
            scale=np.asarray(x.scale) if narrow.is_int8(x) else None,
        )
        return jax.device_put(panels, device, may_alias=True)

    with jax.ensure_compile_time_eval():  # a model may be used inside a program
        return jax.tree_util.tree_map_with_path(laid, params, is_leaf=narrow.is_int8)


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
    contracted = _contracted(path, shape)
    inputs, features = axes[:contracted], axes[contracted:]
    if shape[-1] % _LANES:
        return features + inputs
    return (*features[:-1], *inputs, features[-1])


def _contracted(path, shape):
    """Number of axes of a kernel that are contracted: heads and their widths, or one."""
    return 2 if getattr(path[-2], "key", None) == "out" and len(shape) == 3 else 1


def _on(platform, x):
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return next(iter(x.devices())).platform == platform
