"""The shapes of the released 1B model, for studies that need no trained weights."""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from bytelax.models import presets
from bytelax.models.blt import BLTConfig
from bytelax.models.patching import PatchingConfig


def one_b(
    layers: int | None = None, *, block_size: int = 0, patching: PatchingConfig | None = None
) -> BLTConfig:
    """Its configuration.

    Args:
      layers: of each stack at most; None for all of them.
      block_size: not 0: as Fast BLT changes the model.
      patching: None for its own rule.
    """
    return dataclasses.replace(
        shallow(presets.BLT_1B, layers), patching=patching or PatchingConfig(),
        decoder_input="embedding" if block_size else "encoder", block_size=block_size,
    )  # fmt: skip


def shallow(config: BLTConfig, layers: int | None) -> BLTConfig:
    """A configuration with so many layers of each stack at most; None for all of them."""
    if layers is None:
        return config

    def cut(stack):
        return dataclasses.replace(stack, layers=min(stack.layers, layers))

    stacks = {
        name: cut(getattr(config, name)) for name in ("encoder", "global_transformer", "decoder")
    }
    patcher = dataclasses.replace(config.patcher, trunk=cut(config.patcher.trunk))
    return dataclasses.replace(config, patcher=patcher, **stacks)


def random_params(module) -> dict:
    """Draws parameters as large as trained ones, in bfloat16; the entropy model in float32."""
    ids = jax.ShapeDtypeStruct((1, 64), jnp.int32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), ids)["params"]
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    return tree.unflatten(
        _normal(key, leaf.shape, "float32" if "patcher" in jax.tree_util.keystr(path) else None)
        for key, (path, leaf) in zip(keys, leaves, strict=True)
    )


@functools.partial(jax.jit, static_argnums=(1, 2))
def _normal(key, shape, dtype):
    dtype = dtype or "bfloat16"
    if len(shape) == 1:
        return jnp.ones(shape, dtype)
    return 0.02 * jax.random.normal(key, shape, dtype)
