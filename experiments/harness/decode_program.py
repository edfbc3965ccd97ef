"""The decode loop of a method, with the shapes of its arguments: what studies compile."""

import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from bytelax_kernels import dispatch, gpus

from bytelax import Model, architectures, methods
from bytelax.decode import Params, Text
from bytelax.models import weights


def decode_program(
    module: nn.Module, name: str, *, batch: int, capacity: int, **options
) -> tuple[Callable, tuple]:
    """`Method.decode` and its arguments: parameters and the state after the prefill, as shapes.

    Args:
      module: the model.
      name: of the method.
      batch: number of rows.
      capacity: bytes in the buffer of a row.
      **options: of the method.
    """
    ids = jax.ShapeDtypeStruct((batch, capacity), jnp.int32)
    params = for_decoding(architectures.shapes(module))
    method, _ = methods.build(name, Model(module, params), **options)
    if dispatch.platform() == "gpu" and gpus.run(gpus.CUDA):
        lay_out = functools.partial(jax.tree_util.tree_map_with_path, weights.for_gpus)
        params = jax.eval_shape(lay_out, params)
    text = Text(ids, jax.ShapeDtypeStruct((batch,), jnp.int32))
    begin = functools.partial(method.init, budget=1)
    return method.decode, (Params(params), jax.eval_shape(begin, Params(params), text))


def for_decoding(params):
    """The shapes of parameters in bfloat16; the entropy model stays in float32."""

    def leaf(path, x):
        exact = "patcher" in jax.tree_util.keystr(path)
        return jax.ShapeDtypeStruct(x.shape, jnp.float32 if exact else jnp.bfloat16)

    return jax.tree_util.tree_map_with_path(leaf, params)
