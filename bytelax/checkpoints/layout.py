"""Reads and writes parameters as the tensors of a state dict; see `models.tensor_table`."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bytelax.architectures import PATCHER, parameters
from bytelax.checkpoints.config import CheckpointError
from bytelax.checkpoints.tensors import Tensor, check_finite
from bytelax.models.configs import ModelConfig
from bytelax.models.narrow import Int8
from bytelax.models.tensor_table import Parameter, TensorSlice
from bytelax.pods import global_arrays

# (config, tree of `jax.ShapeDtypeStruct`) -> tree of `jax.sharding.Sharding`; None: one device
Shardings = Callable[[ModelConfig, dict], dict | None]
HEADS = "heads/"
HASH_TABLE = "encoder/hash_embed/embedding"
flatten = functools.partial(flatten_dict, sep="/")  # {"a": {"b": x}} -> {"a/b": x}
unflatten = functools.partial(unflatten_dict, sep="/")
_BUFFERS = ("inv_freq", "freqs_cis")  # rotary tables in some files, which no model reads
_ALIGNMENT = 64  # alignment, in bytes, at which JAX on CPU uses host arrays without a copy


def parameters_under(start: str, config: ModelConfig) -> dict[str, Parameter]:
    """As `parameters`, those whose paths begin so."""
    return {path: x for path, x in parameters(config).items() if path.startswith(start)}


def network_kernels(config: ModelConfig) -> dict[str, Parameter]:
    """The kernels of a model's networks, without those of its entropy model and of its heads."""
    return {
        path: x
        for path, x in parameters(config).items()
        if path.endswith("/kernel") and not path.startswith((PATCHER, HEADS))
    }


def quantized_axes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Paths of the parameters that are quantized, and the axes along which scales are shared.

    They are the kernels of the networks, with a scale for each output, and the hash table, with a
    scale for each row. The entropy model is not among them, because patches would move, nor are
    prediction heads, whose precision makes drafts no cheaper.
    """
    axes = {path: x.contracted for path, x in network_kernels(config).items()}
    return axes | ({HASH_TABLE: (1,)} if HASH_TABLE in parameters(config) else {})


def quantized(config: ModelConfig, params: dict) -> dict:
    """Replaces those parameters of a model in memory by int8 that `quantized_axes` names."""
    axes = quantized_axes(config)
    return unflatten(
        {
            path: on_device(Int8.of(np.asarray(x), axes[path])) if path in axes else x
            for path, x in flatten(params).items()
        }
    )


def on_device(x: Int8) -> Int8:
    """Puts an int8 array of the host on the default device, without a copy where it is a CPU."""
    return jax.block_until_ready(jax.device_put(x, may_alias=True))


def check(
    config: ModelConfig, tensors: Mapping[str, Tensor], source: str, *, under: str = ""
) -> None:
    """Checks that a state dict holds exactly the parameters of a config.

    Rotary tables, and an entropy model that the config does not use, are allowed in addition. With
    `under`, only the parameters whose paths begin so belong in the state dict. `source` is the name
    of the checkpoint in error messages.

    Raises:
      CheckpointError: a tensor is missing or unexpected, or has the wrong shape.
    """
    idle = config.patching is not None and config.patcher is None
    shapes = {
        name: tensor.shape
        for name, tensor in tensors.items()
        if not (idle and name.startswith("model.patcher."))
    }
    table = parameters_under(under, config)
    wanted = {part.name: part.shape for parameter in table.values() for part in parameter.slices}
    check_shapes(
        wanted, shapes, source, kind="tensor", ignored=lambda name: name.endswith(_BUFFERS)
    )


def read_parameters(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    source: str,
    *,
    dtype: np.dtype | None,
    shardings: Shardings | None = None,
    under: str = "",
    quantize: bool = False,
) -> dict:
    """Reads parameters from a state dict that `check` has accepted, one parameter at a time.

    Args:
      config: config of the model.
      tensors: the state dict; rotary tables in it are ignored.
      source: name of the checkpoint in error messages.
      dtype: dtype of all parameters except the entropy model's, which are float32. None keeps the
        stored dtype. If the tensors of a parameter differ, their dtypes are promoted; float64
        becomes float32.
      shardings: where to put the parameters; by default on the default device.
      under: read only the parameters whose paths begin so, and no other tensor.
      quantize: make those of `quantized_axes` int8, from the stored values.

    Returns:
      The nested dict of `jax.Array`s for `module.apply({"params": ...})`.

    Raises:
      CheckpointError: a tensor holds NaN or infinite values, in its own dtype or as `dtype`.
    """
    table = parameters_under(under, config)
    abstract: dict[str, Any] = {
        path: jax.ShapeDtypeStruct(parameter.shape, _dtype(path, parameter, tensors, dtype))
        for path, parameter in table.items()
    }
    axes = quantized_axes(config) if quantize else {}
    for path in axes.keys() & table.keys():
        abstract[path] = _abstract_int8(abstract[path], axes[path])
    wanted = None if shardings is None else shardings(config, unflatten(abstract))
    places = {} if wanted is None else flatten(wanted)
    read = {}
    for path, parameter in table.items():
        if path in axes:
            int8 = _read_int8(parameter, tensors, source, abstract[path], axes[path])
            read[path] = on_device(int8)
            continue
        host = _aligned(parameter.shape, abstract[path].dtype)
        for part in parameter.slices:
            if parameter.plain:
                for start, rows in tensors[part.name].blocks():
                    _fill(host, slice(start, start + len(rows)), rows, part, source)
            else:
                _fill(host, part.at, part.read(tensors[part.name].whole()), part, source)
        place = places.get(path)
        if place is None or place.is_fully_addressable:
            placed = jax.device_put(host, place, may_alias=True)
        else:  # every process has read the whole array, and puts its shards on its devices
            placed = global_arrays.put(host, place)
        read[path] = placed.block_until_ready()  # otherwise host copies would accumulate
    return unflatten(read)


def state_dict(config: ModelConfig, params: Mapping) -> dict[str, Tensor]:
    """Converts parameters to a state dict of lazy tensors, which copy nothing until they are read.

    Raises:
      CheckpointError: the parameters do not match the config.
    """
    table, leaves = parameters(config), flatten(params)
    for path in table:
        if path not in leaves:
            raise CheckpointError(f"the parameter {path} is missing")
    for path, leaf in leaves.items():
        if path not in table:
            raise CheckpointError(f"unexpected parameter {path}: the config has none of this name")
        if isinstance(leaf, Int8):
            raise CheckpointError(
                "an int8 model cannot be written: write the model it was made from, which becomes "
                "int8 whenever it is loaded so"
            )
        if leaf.shape != table[path].shape:
            raise CheckpointError(
                f"the parameter {path} has shape {leaf.shape}, not {table[path].shape}"
            )
    tensors = {}
    for path, parameter in table.items():
        for part in parameter.slices:
            tensors[part.name] = stored(leaves[path], part, plain=parameter.plain)
    return tensors


def check_shapes(
    wanted: Mapping[str, tuple[int, ...]],
    stored: Mapping[str, tuple[int, ...]],
    source: str,
    *,
    kind: str,
    ignored: Callable[[str], bool],
) -> None:
    """Raises CheckpointError unless the stored arrays have the names and shapes that are wanted.

    Stored arrays whose names are `ignored` may be there in addition. In error messages, `source` is
    the file or directory, and `kind` what an array is called.
    """
    for name, shape in wanted.items():
        if name not in stored:
            raise CheckpointError(f"{source}: the {kind} {name} is missing, which its config needs")
        if stored[name] != shape:
            raise CheckpointError(
                f"{source}: {name} has shape {stored[name]}, its config needs {shape}"
            )
    for name in stored:
        if name not in wanted and not ignored(name):
            raise CheckpointError(
                f"{source}: unexpected {kind} {name}, which its config does not have"
            )


def _dtype(path, parameter, tensors, dtype):
    if path.startswith(PATCHER):
        return np.dtype(np.float32)
    if dtype is not None:
        return dtype
    stored = [tensors[part.name].dtype for part in parameter.slices]
    widest = functools.reduce(jnp.promote_types, stored)
    return np.dtype(np.float32) if np.dtype(widest).itemsize > 4 else np.dtype(widest)


def _abstract_int8(x: jax.ShapeDtypeStruct, axes: tuple[int, ...]) -> Int8:
    scale = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    return Int8(
        jax.ShapeDtypeStruct(x.shape, jnp.int8),
        jax.ShapeDtypeStruct(scale, jnp.float32),
        x.dtype.name,
    )


def _fill(host: np.ndarray, at, values: np.ndarray, part: TensorSlice, source: str) -> None:
    """Sets a slice of an array to values of a tensor, cast to its dtype, which must be finite."""
    with np.errstate(over="ignore"):  # an overflow is found in the result
        host[at] = values
    check_finite(host[at], f"{source}: the tensor {part.name}")


def _read_int8(parameter, tensors, source, abstract: Int8, axes) -> Int8:
    """Reads a parameter as int8; a table, whose rows have their own scales, block by block."""
    if not parameter.plain:
        names = [part.name for part in parameter.slices]
        widest = functools.reduce(jnp.promote_types, [tensors[name].dtype for name in names])
        host = np.empty(parameter.shape, widest)
        for part in parameter.slices:
            _fill(host, part.at, part.read(tensors[part.name].whole()), part, source)
        return Int8.of(host, axes, dtype=abstract.dtype)
    values = _aligned(abstract.shape, np.dtype(np.int8))
    scale = _aligned(abstract.scale.shape, np.dtype(np.float32))
    (part,) = parameter.slices
    for start, rows in tensors[part.name].blocks():
        check_finite(rows, f"{source}: the tensor {part.name}")
        block = Int8.of(rows, axes)
        values[start : start + len(rows)] = block.values
        scale[start : start + len(rows)] = block.scale
    return Int8(values, scale, abstract.dtype)


def _aligned(shape, dtype):
    size = math.prod(shape) * dtype.itemsize
    buffer = np.empty(size + _ALIGNMENT, np.uint8)
    skip = -buffer.ctypes.data % _ALIGNMENT
    return buffer[skip : skip + size].view(dtype).reshape(shape)


def stored(leaf: jax.Array | np.ndarray, part: TensorSlice, *, plain: bool) -> Tensor:
    def rows(start, stop):
        return np.asarray(leaf[start:stop]) if plain else part.write(leaf)[start:stop]

    return Tensor(part.shape, np.dtype(leaf.dtype), rows)
