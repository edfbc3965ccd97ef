"""How the weights of a model lie in memory, so that products read them as they are, and back.

On a TPU an array lies by default in the order of its axes. XLA multiplies by a matrix whose minor
axis fills the 128 lanes, and would copy all kernels with several axes of features at the beginning
of each call of a program: 2 GB of the 1B model. On a processor, and on one GPU, the compiled
kernels read panels.
"""

import operator
import sys
import threading
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
_LAYING_OUT = threading.RLock()  # of one model at a time, so that each is laid out once
_ALONE: dict = {0: {}}  # a dict that nothing else refers to


class Weights:
    """The parameters of a model, as given and as programs read them; each is made from the other.

    Arrays that are replaced in the given dicts take effect at the next use. Weights in panels are
    the only copy in memory, as long as nothing else refers to these dicts.
    """

    def __init__(self, params: dict):
        self._given: dict | None = params
        self._laid_out: Any = None
        self._source: tuple[list, Any] | None = None  # the given arrays that are laid out

    def as_given(self) -> dict:
        """Returns the parameters as they were given, made again if they are gone."""
        with _LAYING_OUT:
            if self._given is None:
                self._given = as_arrays(narrow.from_bits(self._laid_out))
                self._source = jax.tree.flatten(self._given)
            return self._given

    def for_device(self) -> dict:
        """Returns the parameters as compiled programs take them."""
        with _LAYING_OUT:
            if self._given is not None:
                self._lay_out()
            return self._laid_out

    def _lay_out(self):
        """Lays out what was given if it has changed, and drops it if nothing else refers to it."""
        known, in_panels = _same(self._given, self._source), taken_in_panels(self._given)
        keep = not in_panels or _shared(vars(self), "_given")
        leaves, tree = jax.tree_util.tree_flatten_with_path(self._given, is_leaf=narrow.is_int8)
        self._source = jax.tree.flatten(self._given) if keep else None
        self._given = self._given if keep else None
        if known:
            return
        self._laid_out = None  # freed before the new ones are made
        if in_panels:
            laid = []
            leaves.reverse()
            with jax.ensure_compile_time_eval():  # a model may be used inside a program
                while leaves:  # an array that nothing else refers to is freed once it is in panels
                    path, x = leaves.pop()
                    laid.append((for_gpus if _on("gpu", x) else _for_processors)(path, x))
            moved = jax.tree.unflatten(tree, laid)
        else:
            moved = for_products(self._given)
        self._laid_out = narrow.params_as_bits(moved)

    @property
    def held(self) -> dict:
        """The parameters as they lie in memory."""
        with _LAYING_OUT:
            return self._laid_out if self._given is None else self._given


def for_products(params: Any) -> Any:
    """The parameters of a model in their best layouts for the accelerator that holds them.

    Args:
      params: of a model. Arrays that are in a good layout already are not copied. Tracers,
        parameters elsewhere than on TPUs, and int8 are unchanged.
    """
    leaves = jax.tree.leaves(params, is_leaf=narrow.is_int8)
    return relaid(params) if leaves and all(_on("tpu", x) for x in leaves) else params


def taken_in_panels(params: Any) -> bool:
    """Whether the compiled kernels take these parameters, which are then laid out in panels."""
    leaves = jax.tree.leaves(params)
    for platform, compiled in (("cpu", native.available), ("gpu", lambda: gpus.run(gpus.CUDA))):
        if leaves and all(_on(platform, x) and len(x.devices()) == 1 for x in leaves):
            return compiled()
    return False


def _same(params: Any, flat: tuple[list, Any] | None) -> bool:
    """Whether parameters are still those that `flat` was made of, by `jax.tree.flatten`."""
    leaves, tree = jax.tree.flatten(params)
    return flat is not None and tree == flat[1] and all(map(operator.is_, leaves, flat[0]))


def _shared(holder: dict, name: str) -> bool:
    """Whether anything but `holder` refers to its dict of this name, or to a dict within it."""
    return sys.getrefcount(holder[name]) > sys.getrefcount(_ALONE[0]) or any(
        _shared(holder[name], part) for part in holder[name] if isinstance(holder[name][part], dict)
    )


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
    """The parameters of a model from those in panels."""

    def array(x):
        if not is_panels(x):
            return x
        (device,) = x.values.devices()
        values, scale = jax.device_put(x.arrays(), device)
        return values if scale is None else narrow.Int8(values, scale, x.stands_for)

    return jax.tree.map(array, params, is_leaf=is_panels)


def skips_zeros(params: Any) -> bool:
    """Whether products with these parameters, of `Weights.for_device`, leave out rows of zeros."""
    leaves = jax.tree.leaves(params, is_leaf=is_panels)
    return any(isinstance(leaf, cpu.Panels) for leaf in leaves)


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
