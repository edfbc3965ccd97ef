"""Decoding on a mesh: each device runs the program on its own rows and its shard of the weights.

The rows of a batch are independent, and so are devices with different rows: each loops until its
own rows have ended. Devices that share their rows hold different heads and hidden units of every
layer, and sum what these add to the hidden states (`Execution.psum`). Equal sums lead to equal
decisions, so that they run the same number of rounds.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
from jax.sharding import Mesh, PartitionSpec

from bytelax.pods import sharding
from bytelax.pods.sharding import DATA, FSDP

Kind = Literal["params", "rows", "same"]  # of an argument of `spread`


@dataclasses.dataclass(frozen=True)
class Placement:
    """A mesh, and how the parameters are split over it. Hashable, to be static in `jax.jit`."""

    mesh: Mesh
    _specs: tuple[PartitionSpec, ...]
    _tree: Any

    @classmethod
    def of(cls, mesh: Mesh, params: Any) -> "Placement":
        """As the parameters lie: arrays, or `jax.ShapeDtypeStruct`s with shardings."""
        specs, tree = jax.tree.flatten(jax.tree.map(lambda x: x.sharding.spec, params))
        return cls(mesh, tuple(specs), tree)

    @property
    def params(self) -> Any:
        """The tree of `PartitionSpec`s."""
        return jax.tree.unflatten(self._tree, self._specs)


def spread(function: Callable, placement: Placement, kinds: tuple[Kind, ...], *args: Any) -> Any:
    """Calls a function on every device of a mesh, each with its shard of the arguments.

    Args:
      function: of pytrees of arrays. Its modules are from `device_shard`; whatever it returns has
        the batch as its first axis.
      placement: of the parameters.
      kinds: of each argument: "params", "rows" where the batch is the first axis, "same" for what
        every device has a copy of.
      *args: arrays on the mesh.

    Raises:
      ValueError: the heads, hidden units or rows do not divide evenly.
    """
    specs = tuple(_specs(kind, arg, placement) for kind, arg in zip(kinds, args, strict=True))

    def over_devices(out_specs):
        return jax.shard_map(
            function, mesh=placement.mesh, in_specs=specs, out_specs=out_specs, check_vma=False
        )

    # The form of the result, which its specs have, is known only once the function was traced.
    form = jax.eval_shape(over_devices(PartitionSpec()), *args)
    return over_devices(sharding.state_specs(form))(*args)


def shard_index() -> jax.Array:
    """Within `spread`: which shard of the batch this device has, from 0."""
    return jax.lax.axis_index((DATA, FSDP))


def _specs(kind, arg, placement):
    if kind == "params":
        return placement.params
    return sharding.state_specs(arg) if kind == "rows" else PartitionSpec()
