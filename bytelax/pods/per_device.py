"""Decoding on a mesh: every device runs the program on its own rows and its shard of the weights.

Rows of a batch are independent, and so are devices with different rows: each loops until its own
rows have ended. Devices with the same rows hold different heads and hidden units of every layer,
and sum the contributions of these to the hidden states (`Execution.psum`). All of them get equal
sums and make equal decisions, so they run the same number of rounds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
from jax.sharding import Mesh, PartitionSpec

from bytelax.pods import sharding

Kind = Literal["params", "rows"]  # how an argument of `spread` is sharded


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
        placement.params if kind == "params" else sharding.state_specs(arg)
        for kind, arg in zip(kinds, args, strict=True)
    )

    def over_devices(out_specs):
        return jax.shard_map(
            function, mesh=placement.mesh, in_specs=specs, out_specs=out_specs, check_vma=False
        )

    # The specs of the result need its tree structure, which is known only after tracing.
    form = jax.eval_shape(over_devices(PartitionSpec()), *args)
    return over_devices(sharding.state_specs(form))(*args)
