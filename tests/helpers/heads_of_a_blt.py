"""A BLT of three byte values with random heads."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bytelax import Model, vocab
from bytelax.options import BltDHead, BltSHead, DFlashHead, EagleHead, HeadsConfig, MedusaHead
from tests.helpers import decoding
from tests.helpers.models_for_tests import VARIANTS, model, numbered, replace, unnumbered

HEADS = HeadsConfig(
    medusa=MedusaHead(count=3, correction=True),
    eagle=EagleHead(depths=(1, 2), window=9, latent=True),
    dflash=DFlashHead(depths=(1, 2), window=9, layers=2, block_size=3, table_rank=2, latent=True),
)
CONFIG = replace(
    VARIANTS["own_embedding"],
    vocab_size=vocab.OFFSET + 3,
    patcher={"vocab_size": vocab.OFFSET + 3},
    patching={},
    global_transformer={"dim": 32},
    heads=HEADS,
)


SEED = 3  # every head is right now and then


def prompts():
    return decoding.prompts(values=3)


@functools.cache
def blt(config=CONFIG, spread=0.1):
    small, rng = model(config, scale=2.0), np.random.default_rng(SEED)
    heads = jax.tree.map(
        lambda x: (
            x if x.ndim == 1 else jax.device_put(spread * rng.standard_normal(x.shape, np.float32))
        ),
        numbered(small.params)["heads"],
    )
    return Model(small.module, unnumbered(small.params | {"heads": heads}))


TABLED = replace(
    CONFIG,
    block_size=3,
    heads=HeadsConfig(blt_d=BltDHead(block_size=3)),
)


LATENTS = replace(CONFIG, heads=HeadsConfig(blt_s=BltSHead(ffn_dim=24)))


def with_latents(config=LATENTS):
    """A BLT with a head of latents, whose patches end and do not end in a draft."""
    return blt(config, spread=0.3)


def with_block_table():
    """A BLT-D whose blocks have a table, with rows that differ and leave several bytes likely."""
    return blt(TABLED, spread=0.4)  # at 1.0 rows are tens of nats: one byte is certain


def without_state(params):
    """These parameters with a block table that depends on the byte before alone."""
    heads = params["heads"]
    table = heads["blt_d"] | {"state": jnp.zeros_like(heads["blt_d"]["state"])}
    return params | {"heads": heads | {"blt_d": table}}
