"""How parameters are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bytelax.models.blt import BLT, BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.configs import TransformerConfig
from bytelax.models.patching import PatchingConfig

# Key and value heads, head widths and hidden widths that differ, so that no fan-in is another's.
STACK = TransformerConfig(dim=64, layers=1, heads=6, kv_heads=2, head_dim=20, ffn_dim=300)
CONFIG = BLTConfig(
    encoder=STACK,
    global_transformer=TransformerConfig(dim=96, layers=1),
    decoder=STACK,
    patching=PatchingConfig(mode="byte"),
    patcher=None,
    hashing=HashConfig(vocab=101),
)
FAN_IN = {
    "encoder/trunk/layers_0/attention/qkv": 64,
    "encoder/trunk/layers_0/attention/out": 6 * 20,
    "encoder/trunk/layers_0/mlp/gate_up": 64,
    "encoder/trunk/layers_0/mlp/down": 300,
    "encoder/cross/query": 64,
    "encoder/cross/key_value": 64,
    "encoder/cross/out": 6 * 20,
    "encoder/split": 64,
    "global_transformer/project": 2 * 64,
    "global_transformer/trunk/layers_0/mlp/down": 256,
    "decoder/split": 96,
    "decoder/cross_0/out": 6 * 20,
}


@pytest.fixture(scope="module")
def params():
    init = jax.jit(BLT(CONFIG).init)
    key = jax.random.key(0, impl="rbg")  # compiles in less time than the default
    return flatten_dict(init(key, jnp.zeros((1, 4), jnp.int32))["params"], sep="/")


def test_kernels_are_scaled_by_their_fan_in(params):
    """So that what a map gives is as large as what it reads, whatever the widths."""
    for name, fan_in in FAN_IN.items():
        kernel = np.asarray(params[f"{name}/kernel"])
        assert kernel.std() == pytest.approx(fan_in**-0.5, rel=0.05), name
        assert abs(kernel.mean()) < 0.05 * kernel.std() + 3 * kernel.std() / kernel.size**0.5


def test_embeddings_and_the_head_are_small(params):
    for name in ("encoder/embed/embedding", "encoder/hash_embed/embedding", "decoder/head/kernel"):
        assert np.asarray(params[name]).std() == pytest.approx(0.02, rel=0.05)


def test_sizes_of_a_stack_have_defaults():
    stack = TransformerConfig(dim=512, layers=1)
    assert (stack.heads, stack.kv_heads, stack.head_dim, stack.ffn_dim) == (8, 8, 64, 1408)
    assert TransformerConfig(dim=32, layers=1).head_dim == 32
    with pytest.raises(ValueError, match="heads must be at least 1, got -1"):
        TransformerConfig(dim=32, layers=1, heads=-1)
