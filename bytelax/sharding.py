"""Where parameters, caches and batches lie on a mesh of devices.

Every axis of a parameter, and of what a decoding keeps between rounds, has a logical name, by one
table each from the names of arrays; rules say which axis of the mesh a logical axis is split over.
One device is the smallest mesh.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

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
      fsdp: the batch is split here too, and so are the parameters: every device holds a part of
        each and gathers the rest as it comes to it.
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

# The end of a parameter's name, and the logical name of each of its axes. The first match counts.
# Those of an entropy model have "patcher_" before them.
AXES: tuple[tuple[str, Axes], ...] = (
    (r"hash_embed/embedding", ("hash_row", "hash_width")),
    (r"embed/embedding", ("byte", "embed")),
    (r"attention/qkv/kernel", ("embed", "kv_head", None, "head_dim")),
    (r"attention/out/kernel", ("head", "head_dim", "embed")),
    (r"mlp/gate_up/kernel", ("embed", None, "hidden")),
    (r"mlp/down/kernel", ("hidden", "embed")),
    (r"cross(_\d+)?/query/kernel", ("embed", "head", "head_dim")),
    (r"cross(_\d+)?/key_value/kernel", ("embed", None, "kv_head", "head_dim")),
    (r"cross(_\d+)?/out/kernel", ("head", "head_dim", "embed")),
    (r"split/kernel", ("embed", None)),
    (r"project/kernel", ("embed", None)),
    (r"head/kernel", ("embed", "byte")),
    (r"((exit|ahead)_heads_\w+|draft_layer)/out/kernel", ("embed", "byte")),
    (r"(step|fusion|inward)/kernel", ("embed", None)),
    (r"correction", (None, "byte", "byte")),
    (r"scale", ("norm",)),
)

# The same for what a decoding keeps. Whatever is not here has the batch as its first axis, and
# every device that works on a row has the rest of it.
STATE_AXES: tuple[tuple[str, Axes], ...] = (
    (r"patcher/\d+/(keys|values)", (BATCH, "patcher_kv_head", None, "head_dim")),
    (r"contexts/\d+/(keys|values)", (BATCH, None, None, "kv_head", "head_dim")),
    (r"(keys|values)", (BATCH, "kv_head", None, "head_dim")),
)

# Logical axis -> axis of the mesh, or several; None: every device has it all.
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

# Whole weights but for heads, hidden units and the hash table: to gather the rest anew for every
# byte would take longer than to read it. The entropy model is whole too, so that a text is cut into
# the same patches to the last bit however many devices share the rest.
_DECODED = {**_WHOLE, **_HEADS, "embed": None, "hash_width": TENSOR}
DECODE_RULES: Rules = {
    BATCH: (DATA, FSDP),
    **_DECODED,
    **dict.fromkeys(f"patcher_{axis}" for axis in _DECODED),
}


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh [data, fsdp, tensor]; XLA finds the layout of what lies between.

    Args:
      config: its shape.
      devices: the first `config.size` of them are taken; by default of all there are.

    Raises:
      ValueError: more devices are asked for than there are; or fewer, where the ones left out
        belong to another process, which would wait for them forever; or they lie in several
        slices of TPUs, between which no axis is meant to talk.
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


def logical_axes(name: str) -> Axes:
    """The logical axes of a parameter.

    Raises:
      ValueError: the name is not in the table.
    """
    for pattern, axes in AXES:
        if re.search(rf"(^|/){pattern}$", name):
            own = "patcher_" if re.search(r"(^|/)patcher/", name) else ""
            return tuple(axis and own + axis for axis in axes)
    raise ValueError(f"no logical axes are known for the parameter {name}: add it to sharding.AXES")


def state_specs(state: Any, rules: Rules = DECODE_RULES) -> Any:
    """How each array of a decoding, or of any tree with the batch as first axis, is split.

    Args:
      state: pytree of arrays; its names decide: `state/decoder/0/keys` is a cache.
      rules: see `Rules`.

    Returns:
      The same tree of `PartitionSpec`s.
    """

    def spec(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found = (axes for pattern, axes in STATE_AXES if re.search(rf"(^|/){pattern}$", name))
        axes = next(found, (BATCH, *(None,) * (leaf.ndim - 1)))
        return PartitionSpec(*(axis and rules[axis] for axis in axes))

    return jax.tree_util.tree_map_with_path(spec, state)


def shardings(params: Any, mesh: Mesh | AbstractMesh, rules: Rules = TRAIN_RULES) -> Any:
    """Where each parameter lies.

    Args:
      params: nested dict of arrays or `jax.ShapeDtypeStruct`s.
      mesh: from `make_mesh`, or an abstract one to compile for devices that are not there.
      rules: see `Rules`.

    Returns:
      The same tree of `NamedSharding`s; also what `checkpoints.read` takes, given a mesh.

    Raises:
      ValueError: an unknown parameter or axis, or an axis that does not divide evenly.
    """
    for axis in rules:  # all of them: caches and batches will need theirs
        _mesh_axis(axis, mesh, rules)

    def place(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, _spec(name, leaf.shape, mesh, rules))

    return jax.tree_util.tree_map_with_path(place, params)


def batch_sharding(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """Of arrays whose first axis is the batch."""
    return NamedSharding(mesh, PartitionSpec((DATA, FSDP)))


def replicated(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """Of what every device has a copy of."""
    return NamedSharding(mesh, PartitionSpec())


def batch_parts(mesh: Mesh) -> int:
    """Parts that a batch is split into on a mesh."""
    return mesh.shape[DATA] * mesh.shape[FSDP]


def _spec(name, shape, mesh, rules):
    axes = logical_axes(name)
    if len(axes) != len(shape):
        raise ValueError(f"{name} has shape {shape}, its logical axes are {axes}")
    entries = []
    for size, axis in zip(shape, axes, strict=True):
        entry = None if axis is None else _mesh_axis(axis, mesh, rules)
        parts = math.prod(mesh.shape[part] for part in _several(entry))
        if size % parts:
            raise ValueError(
                f"{name}: its axis {axis} of {size} does not divide among the {parts} devices of "
                f"the mesh axis {' and '.join(_several(entry))}"
            )
        entries.append(entry)
    return PartitionSpec(*entries)


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
