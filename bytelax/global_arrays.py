"""Arrays on a mesh that several processes share: what each gives, and what each gets to see."""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jaxtyping import Int

from bytelax import sharding


def put(tree: Any, places: Any) -> Any:
    """Host values, the same in every process, as arrays that lie where `places` says.

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
    """Arrays as numpy's, whole in every process; all processes have to call it."""
    if all(leaf.is_fully_addressable for leaf in jax.tree.leaves(tree)):
        return jax.device_get(tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def rows_here(mesh: Mesh, rows: int) -> Int[np.ndarray, " R"]:
    """Which rows of a batch the devices of this process have, ascending.

    Processes that share rows, as those of a mesh with `tensor` across them do, have the same ones.

    Raises:
      ValueError: the rows do not divide evenly.
    """
    parts = sharding.batch_parts(mesh)
    if rows % parts:
        raise ValueError(f"a batch of {rows} rows does not divide among {parts} parts of the mesh")
    held = sharding.batch_sharding(mesh).addressable_devices_indices_map((rows,))
    return np.unique(np.concatenate([np.arange(rows)[index] for index in held.values()]))


def all_rows(mesh: Mesh, own: int) -> int:
    """Rows of a batch of which the devices of this process have so many."""
    parts = sharding.batch_parts(mesh)
    return own * parts // len(rows_here(mesh, parts))


def put_rows(mesh: Mesh, own: np.ndarray) -> jax.Array:
    """A batch, of which every process gives its rows.

    Args:
      mesh: where it will lie.
      own: those of `rows_here`.
    """
    rows = all_rows(mesh, len(own))
    here = rows_here(mesh, rows)

    def take(index):
        return own[np.searchsorted(here, np.arange(rows)[index[0]])]

    shape = (rows, *own.shape[1:])
    return jax.make_array_from_callback(shape, sharding.batch_sharding(mesh), take)
