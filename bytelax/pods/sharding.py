"""Meshes, the sharding of parameters, caches and batches over them, and decoding on all devices.

Every axis of a parameter and of a cache has a logical name, given where the parameter or the cache
is defined. Rules map logical axes to axes of the mesh. A single device is a mesh of size 1.

When decoding, every device runs the program on its own rows and its shard of the weights; see
`spread`. Rows of a batch are independent, and so are devices with different rows: each loops until
its own rows have ended. Devices with the same rows hold different heads and hidden units of every
layer, and sum the contributions of these to the hidden states (`Execution.psum`). All of them get
equal sums and make equal decisions, so they run the same number of rounds.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import jax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from bytelax.pods.configs import MeshConfig

DATA, FSDP, TENSOR = "data", "fsdp", "tensor"
BATCH = "batch"
Kind = Literal["params", "rows"]  # how an argument of `spread` is sharded

Axes = tuple[str | None, ...]

# Logical axis -> the axis or axes of the mesh over which it is split; None if it is not split.
Rules = Mapping[str, str | tuple[str, ...] | None]

_WHOLE = dict.fromkeys(("head_dim", "byte", "hash_row", "norm"))
_HEADS = dict.fromkeys(("kv_head", "head", "hidden"), TENSOR)

# Byte and hash tables are split by columns, so that a lookup needs no rows of other devices.
_TRAINED = {**_WHOLE, **_HEADS, "embed": FSDP, "hash_width": FSDP}
TRAIN_RULES: Rules = {
    BATCH: (DATA, FSDP),
    **_TRAINED,
    **{f"patcher_{axis}": where for axis, where in _TRAINED.items()},
}

# Heads, hidden units and the hash table are split. Every device holds all other weights, because
# gathering them for every byte would take longer than reading them. The entropy model is replicated
# too, so that the patches of a text do not depend on the number of devices.
_DECODED = {**_WHOLE, **_HEADS, "embed": None, "hash_width": TENSOR}
DECODE_RULES: Rules = {
    BATCH: (DATA, FSDP),
    **_DECODED,
    **dict.fromkeys(f"patcher_{axis}" for axis in _DECODED),
}


def as_mesh(mesh: MeshConfig | Mesh | str) -> Mesh:
    """Returns a mesh as it is, or makes one of a config or of text such as "data=8,tensor=4".

    Raises:
      ValueError: it is none of these, or as in `make_mesh`.
    """
    if isinstance(mesh, str):
        mesh = MeshConfig.parse(mesh)
    if isinstance(mesh, MeshConfig):
        return make_mesh(mesh)
    if not isinstance(mesh, Mesh):
        raise ValueError(
            "mesh must be text such as 'data=8,tensor=4', a bytelax.MeshConfig or a "
            f"jax.sharding.Mesh, not {type(mesh).__name__}"
        )
    return mesh


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Creates a mesh with the axes data, fsdp and tensor.

    Args:
      config: shape of the mesh.
      devices: the mesh takes the first `config.size` of them; by default `jax.devices()`.

    Raises:
      ValueError: there are too few devices; or there are several processes and the mesh leaves
        out a device, whose process would wait forever; or the devices belong to several TPU
        slices, whose connection is too slow for these axes; or the devices belong to several
        processes that are not connected.
    """
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        raise ValueError(
            f"the devices belong to {jax.process_count()} processes that are not connected: "
            "pass --coordinator auto in each, or call jax.distributed.initialize() first"
        )
    found = list(jax.devices() if devices is None else devices)
    shape = (config.data, config.fsdp, config.tensor)
    wanted = " x ".join(map(str, shape))
    if config.size > len(found):
        there = "is" if len(found) == 1 else "are"
        advice = ""
        if found[0].platform == "cpu":
            advice = f"; JAX_NUM_CPU_DEVICES={config.size} makes as many of a processor"
        raise ValueError(
            f"a mesh of {wanted} needs {config.size} devices, there {there} {len(found)}{advice}"
        )
    if config.size < len(found) and jax.process_count() > 1:
        raise ValueError(f"a mesh of {wanted} leaves some of the {len(found)} devices out")
    taken = found[: config.size]
    # A TPU of a single slice may lack this attribute.
    slices = {getattr(device, "slice_index", 0) for device in taken if device.platform == "tpu"}
    if len(slices) > 1:
        raise ValueError(f"a mesh of {wanted} spans {len(slices)} slices of TPUs, not one")
    kinds = (AxisType.Auto,) * len(shape)
    # `jax.make_mesh` refuses to split an axis of a torus, such as the 8 of a v5p 8x8x8 into 4 x 2.
    placed = mesh_utils.create_device_mesh(shape, taken, allow_split_physical_axes=True)
    return Mesh(placed, (DATA, FSDP, TENSOR), axis_types=kinds)


@typing.runtime_checkable
class Cached(Protocol):
    """A node of the decoding state that names the logical axes of its arrays, such as `KVCache`."""

    @property
    def logical_axes(self) -> Axes:
        """The logical axes, which all arrays of the node share."""
        ...


def state_specs(state: Any) -> Any:
    """Partition specs of a decoding state, or of any tree whose arrays start with the batch axis.

    Args:
      state: pytree of arrays. The arrays of a `Cached` node are split by their logical axes, and
        all others along their first axis, the batch axis, only.

    Returns:
      A tree of `PartitionSpec`s with the same structure.
    """

    def specs(node):
        if isinstance(node, Cached):
            return jax.tree.map(lambda _: _spec(node.logical_axes, DECODE_RULES), node)
        return _spec((BATCH, *(None,) * (node.ndim - 1)), DECODE_RULES)

    return jax.tree.map(specs, state, is_leaf=lambda node: isinstance(node, Cached))


def shardings(params: Any, axes: Any, mesh: Mesh | AbstractMesh, rules: Rules = TRAIN_RULES) -> Any:
    """Shardings of the parameters of a model.

    Args:
      params: nested dict of arrays or `jax.ShapeDtypeStruct`s.
      axes: logical axes of each parameter, from `module.logical_axes()`.
      mesh: from `make_mesh`, or an abstract mesh to compile for devices that are not attached.
      rules: see `Rules`.

    Returns:
      A tree of `NamedSharding`s with the structure of `params`.

    Raises:
      ValueError: the mesh has other axes, or a parameter does not divide evenly.
    """
    if not {DATA, FSDP, TENSOR} <= set(mesh.shape):
        raise ValueError(f"a mesh has the axes data, fsdp and tensor, not {tuple(mesh.shape)}")

    def place(path, leaf, names):
        where = NamedSharding(mesh, _spec(names, rules))
        try:
            where.shard_shape(leaf.shape)
        except ValueError:
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            raise ValueError(
                f"{name} of shape {leaf.shape} with the axes {names} does not divide evenly on the "
                f"mesh {dict(mesh.shape)}"
            ) from None
        return where

    return jax.tree_util.tree_map_with_path(place, params, axes)


def batch_sharding(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """The sharding of arrays that are split along their first axis, the batch axis."""
    return NamedSharding(mesh, PartitionSpec((DATA, FSDP)))


def replicated(mesh: Mesh | AbstractMesh) -> NamedSharding:
    """The sharding of arrays that are replicated on all devices."""
    return NamedSharding(mesh, PartitionSpec())


def batch_shards(mesh: Mesh) -> int:
    """Number of shards of the batch axis on a mesh."""
    return mesh.shape[DATA] * mesh.shape[FSDP]


def _spec(axes, rules):
    return PartitionSpec(*(axis and rules[axis] for axis in axes))


@dataclasses.dataclass(frozen=True)
class Placement:
    """A mesh and the partition specs of the parameters; hashable, so static in `jax.jit`."""

    mesh: Mesh
    _specs: tuple[PartitionSpec, ...]
    _tree: Any

    @classmethod
    def of(cls, mesh: Mesh, params: Any) -> "Placement":
        """The placement of given parameters: arrays, or `jax.ShapeDtypeStruct`s with shardings."""
        specs, tree = jax.tree.flatten(jax.tree.map(lambda x: x.sharding.spec, params))
        return cls(mesh, tuple(specs), tree)

    @property
    def params(self) -> Any:
        """The tree of `PartitionSpec`s of the parameters."""
        return jax.tree.unflatten(self._tree, self._specs)


def spread(function: Callable, placement: Placement, kinds: tuple[Kind, ...], *args: Any) -> Any:
    """Calls a function on every device of a mesh, each with its shards of the arguments.

    Args:
      function: function of pytrees of arrays. It uses modules from `device_shard`, and the first
        axis of every array that it returns is the batch axis, unless a `Cached` node says
        otherwise.
      placement: mesh, and partition specs of the parameters.
      kinds: how each argument is sharded: "params" like the parameters, and "rows" along the batch
        axis, which comes first.
      *args: arrays on the mesh.

    Raises:
      ValueError: the heads, hidden units or rows do not divide evenly.
    """
    specs = tuple(
        placement.params if kind == "params" else state_specs(arg)
        for kind, arg in zip(kinds, args, strict=True)
    )

    def over_devices(out_specs):
        return jax.shard_map(
            function, mesh=placement.mesh, in_specs=specs, out_specs=out_specs, check_vma=False
        )

    # The specs of the result need its tree structure, which is known only after tracing.
    form = jax.eval_shape(over_devices(PartitionSpec()), *args)
    return over_devices(state_specs(form))(*args)
