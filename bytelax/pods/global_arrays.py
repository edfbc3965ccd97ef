"""Creates and reads arrays on a mesh that several processes share."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Int

from bytelax.pods import sharding


def put(tree: Any, places: Any) -> Any:
    """Puts host values on devices, as `jax.device_put` does, also across processes.

    Args:
      tree: pytree of array-likes; the values must be equal in all processes.
      places: tree of shardings with the same structure, or one sharding for all leaves.
    """

    def place(value, where):
        if (
            isinstance(value, jax.Array)
            and value.is_fully_addressable == where.is_fully_addressable
        ):
            return jax.device_put(value, where)
        value = np.asarray(value)
        return _made(value.shape, where, lambda index: value[index])

    if isinstance(places, NamedSharding):
        places = jax.tree.map(lambda _: places, tree)
    return jax.tree.map(place, tree, places)


def fetch(tree: Any) -> Any:
    """Copies whole arrays to the host of every process. All processes have to call this."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def rows_here(mesh: Mesh, rows: int) -> Int[np.ndarray, " R"]:
    """Indices, ascending, of the rows of a batch that the devices of this process hold.

    Processes hold the same rows if the mesh's `tensor` axis extends across them.

    Args:
      mesh: from `sharding.make_mesh`.
      rows: number of rows of the global batch.

    Raises:
      ValueError: the rows do not divide evenly among the shards of the batch axis.
    """
    parts = sharding.batch_shards(mesh)
    if rows % parts:
        raise ValueError(f"a batch of {rows} rows does not divide among {parts} parts of the mesh")
    held = sharding.batch_sharding(mesh).addressable_devices_indices_map((rows,))
    return np.unique(np.concatenate([np.arange(rows)[index] for index in held.values()]))


def all_rows(mesh: Mesh, own: int) -> int:
    """Number of rows of the global batch, given the number of rows of this process."""
    parts = sharding.batch_shards(mesh)
    return own * parts // len(rows_here(mesh, parts))


def put_rows(mesh: Mesh, own: np.ndarray) -> jax.Array:
    """Creates a batch on the mesh from the rows of every process.

    Args:
      mesh: from `sharding.make_mesh`.
      own: the rows of this process, in the order of `rows_here`.
    """
    rows = all_rows(mesh, len(own))
    here = rows_here(mesh, rows)

    def take(index):
        return own[np.searchsorted(here, np.arange(rows)[index[0]])]

    shape = (rows, *own.shape[1:])
    return _made(shape, sharding.batch_sharding(mesh), take)


def _made(shape, where, part):
    # JAX counts what a callback returns as an implicit transfer, but this one is explicit.
    with jax.transfer_guard_host_to_device("allow"):
        return jax.make_array_from_callback(shape, where, part)
