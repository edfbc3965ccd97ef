"""Where parameters and batches lie on a mesh of devices.

Every axis of a parameter has a logical name, by one table from parameter names; rules say which
axis of the mesh a logical axis is split over. One device is the smallest mesh.
"""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"


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

    @property
    def batch_shards(self) -> int:
        """Parts that a batch is split into."""
        return self.data * self.fsdp


# The end of a parameter's name, and the logical name of each of its axes. The first match counts.
AXES: tuple[tuple[str, tuple[str | None, ...]], ...] = (
    (r"hash_embed/embedding", ("hash_row", "embed")),
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

Rules = Mapping[str, str | None]  # logical axis -> axis of the mesh; None: every device has it all

# Tables of bytes and hashes are split by their width: a lookup then stays on its device.
TRAIN_RULES: Rules = {
    "embed": FSDP,
    "kv_head": TENSOR,
    "head": TENSOR,
    "hidden": TENSOR,
    "head_dim": None,
    "byte": None,
    "hash_row": None,
    "norm": None,
}


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """The mesh [data, fsdp, tensor]; XLA finds the layout of what lies between.

    Args:
      config: its shape.
      devices: the first `config.size` of them are taken; by default of all there are.

    Raises:
      ValueError: more devices are asked for than there are; or fewer, where the ones left out
        belong to another process, which would wait for them forever.
    """
    found = list(jax.devices() if devices is None else devices)
    shape = (config.data, config.fsdp, config.tensor)
    wanted = " x ".join(map(str, shape))
    if config.size > len(found):
        raise ValueError(f"a mesh of {wanted} needs {config.size} devices, there are {len(found)}")
    if config.size < len(found) and jax.process_count() > 1:
        raise ValueError(f"a mesh of {wanted} leaves some of the {len(found)} devices out")
    kinds = (AxisType.Auto,) * len(shape)
    return jax.make_mesh(shape, (DATA, FSDP, TENSOR), kinds, devices=found[: config.size])


def logical_axes(name: str) -> tuple[str | None, ...]:
    """The logical axes of a parameter.

    Raises:
      ValueError: the name is not in the table.
    """
    for pattern, axes in AXES:
        if re.search(rf"(^|/){pattern}$", name):
            return axes
    raise ValueError(f"no logical axes are known for the parameter {name}: add it to sharding.AXES")


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

    def place(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return NamedSharding(mesh, _spec(name, leaf.shape, mesh, rules))

    return jax.tree_util.tree_map_with_path(place, params)


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Of arrays whose first axis is the batch."""
    return NamedSharding(mesh, PartitionSpec((DATA, FSDP)))


def replicated(mesh: Mesh) -> NamedSharding:
    """Of what every device has a copy of."""
    return NamedSharding(mesh, PartitionSpec())


def _spec(name, shape, mesh, rules):
    axes = logical_axes(name)
    if len(axes) != len(shape):
        raise ValueError(f"{name} has shape {shape}, its logical axes are {axes}")
    entries = []
    for size, axis in zip(shape, axes, strict=True):
        entries.append(None if axis is None else _mesh_axis(axis, mesh, rules))
        parts = math.prod(mesh.shape[entry] for entry in entries[-1:] if entry)
        if size % parts:
            raise ValueError(
                f"{name}: its axis {axis} of {size} does not divide among the {parts} devices of "
                f"the mesh axis {entries[-1]}"
            )
    return PartitionSpec(*entries)


def _mesh_axis(axis, mesh, rules):
    if axis not in rules:
        raise ValueError(f"the rules do not say where the logical axis {axis!r} goes")
    found = rules[axis]
    if found is not None and found not in mesh.shape:
        raise ValueError(
            f"the rules put {axis!r} on the mesh axis {found!r}; the mesh has {tuple(mesh.shape)}"
        )
    return found
