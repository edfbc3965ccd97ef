"""The joint loss beside a dense mask of the paper's equations, at windows around the block's size.

Fast BLT (arXiv 2605.08044, section 2.1.2, equations 5 to 7). The attention window of the decoder
counts the clean bytes before a block, and cuts no block.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax.models.block_attention import Blocks
from bytelax.training.objectives import BLTD, CorruptionConfig, corrupt
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

BLOCK, LENGTH = 8, 40
CORRUPTION = CorruptionConfig(block_sizes=(BLOCK,))
KEY = jax.random.key(5)


def seen(blocks: Blocks, length, window):
    """bool[B, T, T]: what each of the clean bytes, and of the cells behind them, attends to."""
    batch, number, size = blocks.ids.shape

    def entries(of_clean, of_cells):
        clean = jnp.broadcast_to(of_clean, (batch, length))
        cells = jnp.broadcast_to(of_cells, blocks.ids.shape).reshape(batch, -1)
        return jnp.concatenate([clean, cells], axis=1)

    place = entries(jnp.arange(length), blocks.positions())
    block = entries(-1, jnp.arange(number)[:, None])
    used = entries(True, jnp.arange(size) < blocks.length[..., None])
    # A clean byte predicts the next one, and has read itself; a block has read what precedes it.
    end = entries(jnp.arange(length) + 1, blocks.start[..., None])
    first = entries(jnp.arange(length), blocks.start[..., None]) - window + 1
    clean = (block < 0)[:, None]
    before = clean & (place[:, None] < end[..., None]) & (place[:, None] >= first[..., None])
    same = ~clean & (block[:, None] == block[..., None]) & used[:, None]
    return before | same | jnp.eye(place.shape[1], dtype=bool)  # what is unused attends to itself


def dense(projections, cache, *, mask):
    queries, keys, values = projections.rotated()
    keys, values = (jnp.repeat(x, queries.shape[2] // x.shape[2], axis=2) for x in (keys, values))
    scores = jnp.einsum("bqhd,bkhd->bhqk", queries, keys) * queries.shape[-1] ** -0.5
    weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhd->bqhd", weights, values), None


@functools.partial(jax.jit, static_argnames=("module", "window"))
def by_the_equations(module, params, ids, window):
    """What is drawn, the loss of equation 7 for each byte, and the logits of the cells."""
    blt = module.bind({"params": params})
    text = blt.encode(ids[:, :-1])
    drawn = corrupt(KEY, ids, text.closes, config=CORRUPTION)
    blocks, (batch, length) = drawn.blocks, text.patch.shape
    mask = seen(blocks, length, window)
    # The latent of the latest patch that closed before the block.
    latent = jnp.take_along_axis(text.patch, blocks.start - 1, axis=1)[..., None]
    cells = [
        jnp.broadcast_to(x, blocks.ids.shape).reshape(batch, -1)
        for x in (blocks.ids, latent, blocks.positions())
    ]
    places = jnp.broadcast_to(jnp.arange(length), (batch, length))
    every, patch, positions = (
        jnp.concatenate(pair, axis=1)
        for pair in zip((ids[:, :-1], text.patch, places), cells, strict=True)
    )
    hidden, _ = blt.decoder.layers(
        blt.decoder.embed(every), blt.decoder.context(text.latents), None, patch=patch,
        positions=positions, attend=functools.partial(dense, mask=mask),
    )  # fmt: skip
    nats = -jax.nn.log_softmax(blt.decoder.logits(hidden))
    clean, logits = nats[:, :length], -nats[:, length:].reshape(*blocks.ids.shape, -1)
    loss = jnp.take_along_axis(clean, ids[:, 1:, None], axis=2).sum()
    own = -jnp.take_along_axis(logits, drawn.targets[..., None], axis=3)[..., 0]
    loss += jnp.where(drawn.masked, own / drawn.t[..., None], 0).sum()
    return drawn, loss / (batch * length), logits


@pytest.mark.parametrize("window", [3, slow(BLOCK), slow(BLOCK + 7), slow(None)])
def test_the_joint_loss_is_that_of_the_equations(window):
    config = models.replace(models.VARIANTS["own_embedding"], decoder={"window": window})
    model = models.model(config)
    ids = jnp.asarray(models.random_text(2, LENGTH + 1, eos=False))
    drawn, expected, logits = by_the_equations(
        model.module, model.params, ids, window or 2 * LENGTH
    )

    objective = BLTD(model.module, corruption=CORRUPTION)

    def cells(blt, blocks):
        text = blt.encode(ids[:, :-1])
        contexts = blt.decoder.context(text.latents)
        found = blt.decoder.joint(ids[:, :-1], contexts, blocks, patch=text.patch, span=text.span)
        return jax.nn.log_softmax(found.cells)

    @jax.jit
    def both(params, blocks):
        found = model.module.apply({"params": params}, blocks, method=cells)
        return objective.loss(params, ids, KEY)[0], found

    loss, found, logits = map(np.asarray, (*both(model.params, drawn.blocks), logits))
    np.testing.assert_allclose(loss, expected, rtol=2e-6)
    used = np.arange(BLOCK) < np.asarray(drawn.blocks.length)[..., None]
    assert used.sum() > 5 * BLOCK
    np.testing.assert_allclose(found[used], logits[used], atol=1e-4)
