"""BLT-D's training pass: nothing that a block must not see reaches it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.models import block_attention
from bytelax.models.block_attention import Blocks
from bytelax.models.blt import Decoder
from bytelax.training.objectives import BLTD, CorruptionConfig, corrupt
from bytelax.training.optimizer import combine, partition
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive

LENGTH = 48
BLOCKS = [(7, 4), (19, 8), (33, 6)]  # start, cells


@functools.cache
def model():
    return models.model(models.VARIANTS["own_embedding"])


def blocks_of(ids):
    start, length = (np.tile(each, (len(ids), 1)) for each in zip(*BLOCKS, strict=True))
    return Blocks(np.full((*start.shape, 8), vocab.MASK), start, length)


def traced():
    """A program of its own, so that a planted fault is traced: `joint` below."""

    def run(blt, ids, blocks):
        text = blt.encode(ids)
        contexts = blt.decoder.context(text.latents)
        return blt.decoder.joint(ids, contexts, blocks, patch=text.patch, span=text.span)

    @jax.jit
    def both(params, ids, blocks):
        return model().module.apply({"params": params}, ids, blocks, method=run)

    def of(ids, cells=None):
        blocks = blocks_of(ids) if cells is None else blocks_of(ids)._replace(ids=cells)
        return jax.device_get(both(model().params, ids, blocks))

    return of


@functools.cache
def joint():
    """A program of texts: the logits of clean bytes, and of the cells of blocks."""
    return traced()


def texts():
    return models.random_text(2, LENGTH)


def changed_from(start):
    """The texts with other bytes from a place on."""
    ids = texts()
    ids[:, start:] = models.random_text(2, LENGTH, seed=9)[:, start:]
    return ids


def test_clean_half_is_the_plain_forward_pass():
    clean, _ = joint()(texts())
    np.testing.assert_allclose(clean, model().logits(texts()), atol=1e-5)


def leak(block, run):
    """How much a block's logits change with the clean bytes from its start on."""
    start, length = BLOCKS[block]
    moved = np.abs(run(texts())[1] - run(changed_from(start))[1])
    return moved[:, block, :length].max()


@pytest.mark.parametrize("block", [exhaustive(0), 1, exhaustive(2)])
def test_a_block_sees_no_clean_byte_from_its_start_on(block):
    assert leak(block, joint()) == 0
    # And it does see the byte before.
    other, (start, length) = texts(), BLOCKS[block]
    other[:, start - 1] = vocab.OFFSET + (other[:, start - 1] + 1) % vocab.BYTES
    (_, before), (_, moved) = joint()(texts()), joint()(other)
    assert (np.abs(moved - before)[:, block, :length].max(-1) > 0).all()


@pytest.mark.exhaustive
def test_a_visible_clean_twin_is_seen(monkeypatch):
    """The leak of a well-known misprint: cells that see the clean bytes of their own block."""
    attend_cells = block_attention.attend_cells

    def shifted(queries, keys, values, clean_keys, clean_values, *, span, blocks):
        later = blocks._replace(start=jnp.minimum(blocks.start + 1, LENGTH - 1))
        return attend_cells(
            queries, keys, values, clean_keys, clean_values, span=span, blocks=later
        )

    monkeypatch.setattr(block_attention, "attend_cells", shifted)
    assert leak(0, traced()) > 0


@pytest.mark.exhaustive
def test_a_latent_of_the_own_patch_is_seen(monkeypatch):
    read = Decoder.read_latent

    def next_patch(self, layer, x, context, patch):
        return read(self, layer, x, context, patch + 1)

    monkeypatch.setattr(Decoder, "read_latent", next_patch)
    run = traced()
    assert max(leak(block, run) for block in range(len(BLOCKS))) > 0
    assert clean_leak(run) > 0


def clean_leak(run):
    """How much the clean half changes with later bytes of its text."""
    ends = (11, 26, 40)
    before = run(texts())[0]
    return max(np.abs(run(changed_from(end))[0] - before)[:, :end].max() for end in ends)


@pytest.mark.slow
def test_a_clean_byte_reads_no_latent_of_an_open_patch():
    assert clean_leak(joint()) == 0


@pytest.mark.slow
def test_gradient_is_that_of_finite_differences(monkeypatch):
    """Of the whole joint loss along random directions, in float64 throughout."""
    objective = BLTD(
        model().module,
        corruption=CorruptionConfig(block_sizes=(4, 8), mid_patch=0.5, most_blocks=6),
    )
    ids = jnp.asarray(texts())
    trained, frozen = partition(models.model(model().config, scale=1.0).params, objective.trainable)
    monkeypatch.setattr(jnp, "float32", jnp.float64)
    with jax.enable_x64(True):
        trained = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), trained)

        @jax.jit
        def loss(trained):
            return objective.loss(combine(trained, frozen), ids, jax.random.key(3))[0]

        gradient = jax.jit(jax.grad(loss))(trained)
        rng = np.random.default_rng(0)
        for _ in range(3):
            way = jax.tree.map(lambda x: rng.standard_normal(x.shape), trained)
            slope = sum(jax.tree.leaves(jax.tree.map(lambda g, v: (g * v).sum(), gradient, way)))
            step = 1e-6
            ahead, behind = (
                loss(jax.tree.map(lambda x, v, h=h: x + h * v, trained, way)) for h in (step, -step)
            )
            assert abs((ahead - behind) / (2 * step) - slope) < 1e-5 * abs(slope)


def test_a_block_sees_no_other_block_and_no_cell_beyond_its_length():
    filled = np.array(blocks_of(texts()).ids)
    filled[:, 0], filled[:, 1, 8:], filled[:, 2, 6:] = 65, 66, 67
    clean, before = joint()(texts())
    clean_after, after = joint()(texts(), filled)
    np.testing.assert_array_equal(clean, clean_after)
    np.testing.assert_array_equal(before[:, 1:, :6], after[:, 1:, :6])
    assert np.abs(after[:, 0, :4] - before[:, 0, :4]).max() > 0


@pytest.mark.slow
def test_corruption_masks_only_bytes_that_are_there():
    ids = jnp.asarray(texts())
    predict = jax.jit(functools.partial(model().module.apply, method="predict"))
    closes = predict({"params": model().params}, ids[:, :-1])[1]
    config = CorruptionConfig(block_sizes=(4, 8), mid_patch=0.5, t_for_each="block")
    drawn = corrupt(jax.random.key(3), ids, closes, config=config)
    place = np.asarray(drawn.blocks.positions())
    inside = np.arange(place.shape[2]) < np.asarray(drawn.blocks.length)[..., None]
    assert place[inside].max() < LENGTH
    rows = np.arange(2)[:, None, None]
    np.testing.assert_array_equal(
        np.asarray(drawn.targets)[inside], np.asarray(ids)[rows, np.minimum(place, 47)][inside]
    )
    assert not np.asarray(drawn.masked)[~inside].any()
    hidden = np.asarray(drawn.blocks.ids) == vocab.MASK
    np.testing.assert_array_equal(hidden[inside], np.asarray(drawn.masked)[inside])


def test_with_room_for_the_patches_alone_each_has_its_block():
    ids, closes = jnp.asarray(texts()), jnp.zeros((2, 47), bool).at[:, 3::9].set(True)
    config = CorruptionConfig()
    drawn = [
        corrupt(jax.random.key(3), ids, closes, config=config, max_patches=most)
        for most in (None, 5)
    ]
    starts = [np.asarray(each.blocks.start)[np.asarray(each.blocks.length) > 0] for each in drawn]
    np.testing.assert_array_equal(np.sort(starts[0]), np.sort(starts[1]))
    assert [each.blocks.start.shape for each in drawn] == [(2, 47), (2, 5)]
    few = corrupt(jax.random.key(3), ids, closes, config=config, max_patches=3)
    for row in np.asarray(few.blocks.start):
        assert len(set(row)) == 3
        assert set(row) < set(np.flatnonzero(closes[0]) + 1)
    np.testing.assert_array_equal(few.patches, 5)  # by which the loss scales its three blocks


def test_t_begins_where_it_should(monkeypatch):
    """The least number may be drawn, and the loss divides by t."""
    closes = jnp.ones((2, 47), bool)
    monkeypatch.setattr(
        jax.random, "uniform", lambda key, shape, minval=0.0: jnp.full(shape, minval)
    )
    for smallest, least in ((0.25, 0.25), (0.0, 2.0**-23)):
        config = CorruptionConfig(smallest_t=smallest)
        drawn = corrupt(jax.random.key(3), jnp.asarray(texts()), closes, config=config)
        np.testing.assert_array_equal(drawn.t, least)
    with pytest.raises(ValueError, match=r"smallest_t must be in \[0, 1\), got 1"):
        CorruptionConfig(smallest_t=1.0)
