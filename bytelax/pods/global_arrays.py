"""Arrays on a mesh that several processes share: how a process writes and reads its rows."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Int

from bytelax.pods import sharding


def put(tree: Any, places: Any) -> Any:
    """Puts host values, the same in every process, on the devices that `places` names.

    Args:
      tree: of anything that numpy takes.
      places: the same tree of shardings, or one sharding for all.
    """

    def place(value, where):
        if (
            isinstance(value, jax.Array)
            and value.is_fully_addressable == where.is_fully_addressable
        ):
            return jax.device_put(value, where)
        value = np.asarray(value)
        return jax.make_array_from_callback(value.shape, where, lambda index: value[index])

    if isinstance(places, NamedSharding):
        places = jax.tree.map(lambda _: places, tree)
    return jax.tree.map(place, tree, places)


def fetch(tree: Any) -> Any:
    """Copies whole arrays to the host of every process; all processes have to call it."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def rows_here(mesh: Mesh, rows: int) -> Int[np.ndarray, " R"]:
    """Indices of the rows of a batch that the devices of this process hold, ascending.

    Processes hold the same rows where the mesh's `tensor` axis extends across them.

    Raises:
      ValueError: the rows do not divide evenly.
    """
    parts = sharding.batch_parts(mesh)
    if rows % parts:
        raise ValueError(f"a batch of {rows} rows does not divide among {parts} parts of the mesh")
    held = sharding.batch_sharding(mesh).addressable_devices_indices_map((rows,))
    return np.unique(np.concatenate([np.arange(rows)[index] for index in held.values()]))


def all_rows(mesh: Mesh, own: int) -> int:
    """Size of the global batch, given the number of rows that this process has."""
    parts = sharding.batch_parts(mesh)
    return own * parts // len(rows_here(mesh, parts))


def put_rows(mesh: Mesh, own: np.ndarray) -> jax.Array:
    """Makes a batch on the mesh from the rows of every process.

    Args:
      mesh: from `sharding.make_mesh`.
      own: this process's rows, those of `rows_here`.
    """
    rows = all_rows(mesh, len(own))
    here = rows_here(mesh, rows)

    def take(index):
        return own[np.searchsorted(here, np.arange(rows)[index[0]])]

    shape = (rows, *own.shape[1:])
    return jax.make_array_from_callback(shape, sharding.batch_sharding(mesh), take)
