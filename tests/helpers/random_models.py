"""Small random models for the tests of checkpoints."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from bytelax.checkpoints import CheckpointError
from bytelax.models.blt import BLTConfig
from bytelax.models.blt.encoder import HashConfig
from bytelax.models.byte_lm import ByteLMConfig
from bytelax.models.configs import TransformerConfig
from bytelax.models.patching import PatchingConfig
from bytelax.options import BltSHead, DFlashHead, EagleHead, HeadsConfig, MedusaHead
from tests.helpers.models_for_tests import shapes


def stack(dim, layers, ffn_dim, **fields):
    sizes = {"heads": 4, "kv_heads": 4, "head_dim": dim // 4}
    return TransformerConfig(dim=dim, layers=layers, ffn_dim=ffn_dim, **(sizes | fields))


PATCHER = ByteLMConfig(trunk=stack(16, 2, 40, kv_heads=2, window=7, rope_theta=1e4), max_bytes=99)
# Square and oblong projections, no two sizes alike where a mix-up could hide.
SQUARE = BLTConfig(
    encoder=stack(16, 1, 40, window=9),
    global_transformer=stack(32, 2, 72, kv_heads=2),
    decoder=stack(16, 2, 48, window=9),
    patching=PatchingConfig(threshold=5.4),
    patcher=PATCHER,
    hashing=HashConfig(groups=(2, 4), vocab=53, functions=2),
    max_bytes=77,
)
GROUPED = dataclasses.replace(
    SQUARE,
    encoder=stack(16, 2, 40, kv_heads=2, window=9),
    global_transformer=stack(24, 1, 72, kv_heads=1, norm_eps=1e-6),
    decoder=stack(16, 2, 48, kv_heads=2, window=9),
    decoder_cross_attention="first",
)
META = dataclasses.replace(
    SQUARE, mask_documents=True, patcher=dataclasses.replace(PATCHER, mask_documents=True)
)
# What neither transformers nor Meta has a field for.
OWN = dataclasses.replace(
    SQUARE,
    decoder=stack(24, 1, 48, head_dim=10, window=5),
    decoder_input="embedding",
    patching=PatchingConfig(mode="stride", stride=3, monotonicity=True, threshold_add=0.5),
    patcher=None,
    mask_documents=True,
)
# Heads as wide as nothing else.
WITH_HEADS = dataclasses.replace(
    SQUARE,
    heads=HeadsConfig(
        medusa=MedusaHead(count=1),
        eagle=EagleHead(depths=(1, 2), dim=20, heads=2, latent=True),
        dflash=DFlashHead(depths=(2,), dim=20, heads=2, table_rank=3, latent=True),
        blt_s=BltSHead(ffn_dim=28),
    ),
)
BYTE_LM = dataclasses.replace(PATCHER, vocab_size=261)


def random_params(config, seed=0, dtype=jnp.float32):
    """Normal numbers in every parameter, norms included, so that no mix-up goes unseen."""
    rng = np.random.default_rng(seed)
    dtype = jnp.dtype(dtype)
    params = jax.tree.map(lambda x: rng.standard_normal(x.shape).astype(dtype), shapes(config))
    return jax.device_put(params)


def repatched(config, **fields):
    """The config with another patching rule."""
    return dataclasses.replace(config, patching=dataclasses.replace(config.patching, **fields))


def assert_same(left, right):
    """Equal trees, bit for bit and dtype for dtype."""
    assert jax.tree.structure(left) == jax.tree.structure(right)
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def refusal(read, *args, **how):
    """What is said, in one line, when a checkpoint is not read."""
    with pytest.raises(CheckpointError) as error:
        read(*args, **how)
    assert "\n" not in str(error.value)
    return str(error.value)


def shard(directory):
    """Splits model.safetensors into two files with an index, as transformers does."""
    stored = safetensors.numpy.load_file(directory / "model.safetensors")
    names = sorted(stored)
    weight_map = {}
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        safetensors.numpy.save_file({name: stored[name] for name in part}, directory / file)
        weight_map |= dict.fromkeys(part, file)
    (directory / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
