"""How weights lie in memory, so that products read them as they are.

On a TPU an array lies by default in the order of its axes. XLA multiplies by a matrix whose minor
axis fills the 128 lanes, and would copy all kernels with several axes of features at the beginning
of each call of a program: 2 GB of the 1B model. On a processor, and on one GPU, the compiled
kernels read panels.
"""

from typing import Any

import jax
import numpy as np
from bytelax_kernels import gpus, native
from bytelax_kernels.dense import Panels, cpu, gpu
from jax.experimental.layout import Format, Layout
from jax.sharding import Sharding

from bytelax.models import narrow
from bytelax.models.pytree import keys

_LANES = 128


def for_products(params: Any) -> Any:
    """The parameters of a model in their best layouts for the accelerator that holds them.

    Args:
      params: of a model. Arrays that are in a good layout already are not copied. Tracers,
        parameters elsewhere than on TPUs, and int8 are unchanged.
    """
    leaves = jax.tree.leaves(params, is_leaf=narrow.is_int8)
    return relaid(params) if leaves and all(_on("tpu", x) for x in leaves) else params


def taken_in_panels(params: Any) -> bool:
    """Whether the compiled kernels take these parameters, which `in_panels` lays out for them."""
    leaves = jax.tree.leaves(params)
    for platform, compiled in (("cpu", native.available), ("gpu", lambda: gpus.run(gpus.CUDA))):
        if leaves and all(_on(platform, x) and len(x.devices()) == 1 for x in leaves):
            return compiled()
    return False


def in_panels(params: list) -> Any:
    """The parameters with every kernel as the compiled product reads it.

    Args:
      params: a list that holds them, and is emptied: an array to which nothing else refers is
        freed as soon as it is in panels, so that no second copy of the weights comes to be.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(params.pop(), is_leaf=narrow.is_int8)
    laid = []
    leaves.reverse()
    with jax.ensure_compile_time_eval():  # a model may be used inside a program
        while leaves:
            path, x = leaves.pop()
            laid.append((for_gpus if _on("gpu", x) else _for_processors)(path, x))
    return jax.tree.unflatten(tree, laid)


def _for_processors(path, x):
    values = x.values if narrow.is_int8(x) else x
    if not _is_kernel(path) or values.dtype.name not in cpu.DTYPES:
        return x
    (device,) = values.devices()
    panels = cpu.Panels.of(
        np.asarray(values),
        **_form(path, x.shape),
        scale=np.asarray(x.scale) if narrow.is_int8(x) else None,
        stands_for=x.dtype if narrow.is_int8(x) else None,
    )
    return jax.device_put(panels, device, may_alias=True)


def for_gpus(path: tuple, x: Any) -> Any:
    """A parameter as products on a GPU read it: a kernel in panels, if there are any for it."""
    if not _is_kernel(path) or narrow.is_int8(x):
        return x
    form = _form(path, x.shape)
    if not gpu.Panels.hold(x.shape, x.dtype, form["contracted"]):
        return x
    return jax.jit(gpu.Panels.of, static_argnames=tuple(form))(x, **form)


def _is_kernel(path):
    return keys(path)[-1] == "kernel"


def _form(path, shape):
    """How a kernel is multiplied, from its place among the parameters."""
    gated = keys(path)[-2] == "gate_up"
    return {"contracted": _contracted(path, shape), "gated": gated}


def is_panels(x: Any) -> bool:
    """Whether a node of a tree of parameters is a kernel in panels."""
    return isinstance(x, Panels)


def as_arrays(params: Any) -> Any:
    """The parameters again from which `in_panels` has made these."""

    def array(x):
        if not is_panels(x):
            return x
        (device,) = x.values.devices()
        values, scale = jax.device_put(x.arrays(), device)
        return values if scale is None else narrow.Int8(values, scale, x.stands_for)

    return jax.tree.map(array, params, is_leaf=is_panels)


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
    names = keys(path)[-2:]
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
    return 2 if keys(path)[-2] == "out" and len(shape) == 3 else 1


def _on(platform, x):
    if not isinstance(x, jax.Array) or isinstance(x, jax.core.Tracer):
        return False
    return next(iter(x.devices())).platform == platform
