"""Where the activations of a training step lie on a mesh; the models need not know of it."""

import contextlib
from collections.abc import Iterator

import flax.linen as nn
import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from bytelax import sharding
from bytelax.models.layers import Block, Embedding
from bytelax.sharding import DATA, FSDP


@contextlib.contextmanager
def placed(mesh: Mesh | None) -> Iterator[None]:
    """Within this context, what goes from block to block is split by rows of the batch alone.

    XLA finds the places of all that lies between. It is not left to it to keep hidden states by
    width, as the weights that make them are kept. Nor to look up in tables: beside a `data` axis it
    would hold the gradient of a whole table of hashes on every device, and sum it over all of them.

    Args:
      mesh: of the parameters; None or one device leaves everything as it is.
    """

    def intercept(call, args, keywords, context):
        module, is_call = context.module, context.method_name == "__call__"
        if is_call and isinstance(module, Embedding):
            return _looked_up(module.variables["params"]["embedding"], *args, mesh=mesh)
        if is_call and isinstance(module, Block):
            x, cache = call(*args, **keywords)
            return jax.lax.with_sharding_constraint(x, sharding.batch_sharding(mesh)), cache
        return call(*args, **keywords)

    several = mesh is not None and mesh.size > 1
    with nn.intercept_methods(intercept) if several else contextlib.nullcontext():
        yield


def _looked_up(
    table: Float[Array, "R D"], ids: Int[Array, "B *S"], *, mesh: Mesh
) -> Float[Array, "B *S D"]:
    """`table[ids]`, where each device has some of the width of `table` and some rows of `ids`.

    It looks up its width for all rows of the devices that it shares the table with, and exchanges
    what it found for the rest of the width of its own rows.
    """
    rows = PartitionSpec((DATA, FSDP))

    def part(table, ids):
        found = table[jax.lax.all_gather(ids, FSDP, tiled=True)]
        return jax.lax.all_to_all(found, FSDP, 0, found.ndim - 1, tiled=True)

    spread = jax.shard_map(
        part, mesh=mesh, in_specs=(PartitionSpec(None, FSDP), rows), out_specs=rows
    )
    return spread(table, ids)
