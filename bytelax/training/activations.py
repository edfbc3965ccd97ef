"""Where the activations of a training step lie on a mesh; the models need not know of it."""

import contextlib
from collections.abc import Iterator

import flax.linen as nn
import jax
from jax.sharding import Mesh

from bytelax import sharding
from bytelax.models.layers import Block


@contextlib.contextmanager
def placed(mesh: Mesh | None) -> Iterator[None]:
    """Within this context, what goes from block to block is split by rows of the batch alone.

    XLA finds the places of all that lies between. It is not left to it to keep hidden states by
    width, as the weights that make them are kept.

    Args:
      mesh: of the parameters; None or one device leaves everything as it is.
    """

    def intercept(call, args, keywords, context):
        out = call(*args, **keywords)
        if not isinstance(context.module, Block) or context.method_name != "__call__":
            return out
        x, cache = out
        return jax.lax.with_sharding_constraint(x, sharding.batch_sharding(mesh)), cache

    several = mesh is not None and mesh.size > 1
    with nn.intercept_methods(intercept) if several else contextlib.nullcontext():
        yield
