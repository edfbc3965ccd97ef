"""How parameters, caches and batches are split over a mesh of devices.

Every axis of a parameter and of a cache has a logical name, written where the parameter or the
cache is made. Rules say which axis of the mesh a logical axis is split over. One device is the
smallest mesh.
"""

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"
BATCH = "batch"


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig:
    """How many devices each axis of the mesh has.

    Attributes:
      data: copies of the model, each with its share of the batch.
      fsdp: the batch is split here too, and so are the parameters: every device holds a piece of
        each and gathers the others when it needs them.
      tensor: attention heads and hidden units are split here.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self):
        for axis, size in dataclasses.asdict(self).items():
            if size < 1:
                raise ValueError(f"the mesh axis {axis} needs at least 1 device, got {size}")

    @property
    def size(self) -> int:
        return self.data * self.fsdp * self.tensor


Axes = tuple[str | None, ...]

# Logical axis -> the axis or axes of the mesh that it is split over; None: not split.
Rules = Mapping[str, str | tuple[str, ...] | None]

_WHOLE = dict.fromkeys(("head_dim", "byte", "hash_row", "norm"))
_HEADS = dict.fromkeys(("kv_head", "head", "hidden"), TENSOR)

# Tables of bytes and hashes are split by their width: a lookup then stays on its device.
_TRAINED = {**_WHOLE, **_HEADS, "embed": FSDP, "hash_width": FSDP}
TRAIN_RULES: Rules = {
    BATCH: (DATA, FSDP),
    **_TRAINED,
    **{f"patcher_{axis}": where for axis, where in _TRAINED.items()},
}

# Heads, hidden units and the hash table are split; every device has all other weights, because to
# gather them for every byte would take longer than to read them. It has the whole entropy model
# too, so that a text is cut into the same patches, to the last bit, on any number of devices.
_DECODED = {**_WHOLE, **_HEADS, "embed": None, "hash_width": TENSOR}
DECODE_RULES: Rules = {
    BATCH: (DATA, FSDP),
    **_DECODED,
    **dict.fromkeys(f"patcher_{axis}" for axis in _DECODED),
}


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh [data, fsdp, tensor].

    Args:
      config: its shape.
      devices: the mesh takes the first `config.size` of them; by default all devices.

    Raises:
      ValueError: there are too few devices; or a device of another process would be left out, and
        that process would wait forever; or the devices belong to several TPU slices, whose
        connection is too slow for these axes.
    """
    found = list(jax.devices() if devices is None else devices)
    shape = (config.data, config.fsdp, config.tensor)
    wanted = " x ".join(map(str, shape))
    if config.size > len(found):
        raise ValueError(f"a mesh of {wanted} needs {config.size} devices, there are {len(found)}")
    if config.size < len(found) and jax.process_count() > 1:
        raise ValueError(f"a mesh of {wanted} leaves some of the {len(found)} devices out")
    taken = found[: config.size]
    slices = {getattr(device, "slice_index", 0) for device in taken if device.platform == "tpu"}
    if len(slices) > 1:
        raise ValueError(f"a mesh of {wanted} spans {len(slices)} slices of TPUs, not one")
    kinds = (AxisType.Auto,) * len(shape)
    # `jax.make_mesh` refuses a part of a torus's axis, as 4 of the 8 of a v5p 8x8x8 are.
    placed = mesh_utils.create_device_mesh(shape, taken, allow_split_physical_axes=True)
    return Mesh(placed, (DATA, FSDP, TENSOR), axis_types=kinds)


@typing.runtime_checkable
class Cached(Protocol):
    """A node of a decoding's state that says what its arrays' axes are; see `KVCache`."""

    @property
    def logical_axes(self) -> Axes:
        """The same for each of its arrays."""
        ...


def state_specs(state: Any, rules: Rules = DECODE_RULES) -> Any:
    """Partition specs of a decoding, or of any tree whose arrays begin with the batch axis.

    Args:
      state: pytree of arrays. What is not a `Cached` has the batch as its first axis, and every
        device that works on a row has the rest of it.
      rules: see `Rules`.

    Returns:
      The same tree of `PartitionSpec`s.
    """

    def specs(node):
        if isinstance(node, Cached):
            return jax.tree.map(lambda _: _spec(node.logical_axes, rules), node)
        return _spec((BATCH, *(None,) * (node.ndim - 1)), rules)

    return jax.tree.map(specs, state, is_leaf=lambda node: isinstance(node, Cached))


def shardings(params: Any, axes: Any, mesh: Mesh | AbstractMesh, rules: Rules = TRAIN_RULES) -> Any:
    """The sharding of each parameter.

    Args:
      params: nested dict of arrays or `jax.ShapeDtypeStruct`s.
      axes: the logical axes of each, from `module.logical_axes()`.
      mesh: from `make_mesh`, or an abstract one to compile for devices that are not there.
      rules: see `Rules`.

    Returns:
      The same tree of `NamedSharding`s; also what `checkpoints.read` takes, given a mesh.

    Raises:
      ValueError: an unknown axis, or one that does not divide evenly.
    """
    for axis in rules:  # all of them: caches and batches will need theirs
        _mesh_axis(axis, mesh, rules)

    def place(path, leaf, names):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        _check_divides(name, leaf.shape, names, mesh, rules)
        return NamedSharding(mesh, _spec(names, rules))

    return jax.tree_util.tree_map_with_path(place, params, axes)


def batch_sharding(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """The sharding of arrays whose first axis is the batch."""
    return NamedSharding(mesh, PartitionSpec((DATA, FSDP)))


def replicated(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """The sharding of arrays that every device has a copy of."""
    return NamedSharding(mesh, PartitionSpec())


def batch_parts(mesh: Mesh) -> int:
    """Number of shards of a batch on a mesh."""
    return mesh.shape[DATA] * mesh.shape[FSDP]


def _spec(axes, rules):
    return PartitionSpec(*(axis and rules[axis] for axis in axes))


def _check_divides(name, shape, axes, mesh, rules):
    if len(axes) != len(shape):
        raise ValueError(f"{name} has shape {shape}, its logical axes are {axes}")
    for size, axis in zip(shape, axes, strict=True):
        entry = None if axis is None else _mesh_axis(axis, mesh, rules)
        devices = math.prod(mesh.shape[part] for part in _several(entry))
        if size % devices:
            raise ValueError(
                f"{name}: its axis {axis} of {size} does not divide among the {devices} devices of "
                f"the mesh axis {' and '.join(_several(entry))}"
            )


def _mesh_axis(axis, mesh, rules):
    if axis not in rules:
        raise ValueError(f"the rules do not say where the logical axis {axis!r} goes")
    for part in _several(rules[axis]):
        if part not in mesh.shape:
            raise ValueError(
                f"the rules put {axis!r} on the mesh axis {part!r}; the mesh has "
                f"{tuple(mesh.shape)}"
            )
    return rules[axis]


def _several(entry):
    return () if entry is None else (entry,) if isinstance(entry, str) else entry
