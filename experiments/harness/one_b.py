"""The shapes of the released 1B model, for studies that need no trained weights."""

import functools

import jax
import jax.numpy as jnp

from bytelax.models.blt import BLTConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import TransformerConfig
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

    def stack(dim, depth, **fields):
        depth = depth if layers is None else min(depth, layers)
        sizes = {"heads": 16, "kv_heads": 16, "head_dim": dim // 16, "ffn_dim": 2816}
        return TransformerConfig(dim=dim, layers=depth, **(sizes | fields))

    patcher = stack(768, 14, heads=12, kv_heads=12, head_dim=64, ffn_dim=2048, window=512)
    return BLTConfig(
        encoder=stack(1024, 1, window=512),
        global_transformer=stack(2048, 25, ffn_dim=5632),
        decoder=stack(1024, 9, window=512),
        patching=patching or PatchingConfig(),
        patcher=ByteLMConfig(trunk=patcher),
        decoder_input="embedding" if block_size else "encoder",
        block_size=block_size,
    )


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
