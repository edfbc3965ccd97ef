"""A masked block sampled from left to right through a table of the byte before."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import (
    DraftInput,
    Empty,
    Method,
    Params,
    Sampling,
    Text,
)
from bytelax.methods import build
from bytelax.models.execution import Execution
from bytelax.systems import BlockInOrderDrafter, EagleDrafter, blt_d
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models
from tests.helpers.heads_of_a_blt import (
    TABLED,
    UNSURE,
    WIDTH,
    block_in_order,
    blt,
    prompts,
    refreshed_block_in_order,
    with_block_table,
    without_state,
)


@functools.cache
def plain(of):
    return loops.run(of(), Empty(WIDTH), ids=prompts())


@pytest.mark.slow  # a block of masked bytes: test_blt_drafters.py
def test_greedy_output_is_that_of_the_empty_draft():
    decoding = loops.run(with_block_table(), block_in_order(), ids=prompts())
    loops.assert_same(decoding, plain(with_block_table))
    assert 0 < decoding.counts.accepted.sum() < decoding.counts.drafted.sum()
    assert (decoding.counts.draft_passes.decoder == decoding.counts.rounds).all()


def first_draft(drafter, **law):
    """The first draft of ragged rows, the texts with it, and the places of the pending bytes."""
    model = with_block_table()
    method = Method(model.target(), drafter)
    lengths = jnp.array([11, 17, 30])
    ids = jnp.asarray(prompts()[:, :48])
    sampling = Sampling.of(3, allow_eos=False, **law)

    @jax.jit
    def propose(params, text):
        decoding = method.init(params, text, budget=8, sampling=sampling)
        keys = jax.vmap(jax.random.key)(jnp.arange(3))
        inputs = DraftInput(
            (), method.verifier, params.target, decoding.state, text, sampling, keys
        )
        return drafter.propose(inputs, decoding.draft_state)[0]

    draft = propose(Params(model.params), Text(ids, lengths))
    place = lengths[:, None] + jnp.arange(WIDTH)
    known = jnp.where(jnp.arange(48) < lengths[:, None], ids, vocab.BOE)
    return draft, known.at[jnp.arange(3)[:, None], place].set(draft.ids), lengths - 1


@functools.partial(jax.jit, static_argnames="shift")
def in_training(params, ids, pending, *, shift=0):
    """Laws of the bytes behind the pending ones; with a shift, another byte is the one before."""
    model = with_block_table().module.bind({"params": params})
    cells = model.masked_blocks(ids, pending[:, None] + 1, size=WIDTH)[:, 0]
    place = pending[:, None] + jnp.arange(WIDTH) + shift
    row = blt_d.network(TABLED, Execution()).bind({"params": params["heads"]["blt_d"]})(
        jnp.take_along_axis(ids, place, axis=1), cells
    )
    row = row.at[:, 0].set(0)  # the decoder has read the byte before the block
    return jax.nn.softmax((cells + row)[..., vocab.OFFSET :])


@pytest.mark.slow
def test_a_draft_is_what_training_saw():
    draft, ids, pending = first_draft(refreshed_block_in_order(), temperature=1.0)
    found, params = np.exp(draft.log_probs[..., vocab.OFFSET :]), with_block_table().params
    np.testing.assert_allclose(found, in_training(params, ids, pending), atol=1e-5)
    assert np.abs(found - in_training(params, ids, pending, shift=-1)).max() > 1e-2
    assert np.abs(found - in_training(without_state(params), ids, pending)).max() > 1e-2


def test_by_name():
    model = with_block_table()
    drafter = build("blt-dv", model, block_size=3)[0].drafter
    assert drafter == BlockInOrderDrafter(3)
    assert build("blt-dv", model, block_size=3, table=False)[0].drafter != drafter
    with pytest.raises(ValueError, match="one-step"):
        build("blt-dv", model, block_size=3, table=True, unmask="confidence")
    without = models.model(dataclasses.replace(TABLED, heads=None))
    with pytest.raises(ValueError, match="no block table"):
        build("blt-dv", without, block_size=3, table=True)
    with pytest.raises(ValueError, match="not 2"):
        dataclasses.replace(TABLED, block_size=2)


# Drafts that end before a byte that is unlikely to be kept.


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "a layer",
        "a block, with confidence",
        pytest.param("a block", marks=pytest.mark.exhaustive),
        pytest.param("a layer, with confidence", marks=pytest.mark.exhaustive),
    ],
)
def test_a_draft_ends_early_and_the_output_stays(name):
    of, drafter = UNSURE[name]
    decoding = loops.run(of(), drafter, ids=prompts())
    loops.assert_same(decoding, plain(of))
    places = np.asarray(decoding.counts.drafted_by_position.sum(0)).tolist()
    assert any(0 < after < before for before, after in itertools.pairwise(places)), places
    assert decoding.counts.accepted.any()


@pytest.mark.slow
def test_a_draft_layer_that_expects_nothing_runs_once_a_round():
    decoding = loops.run(blt(), EagleDrafter(WIDTH, min_survival=1.0), ids=prompts())
    loops.assert_same(decoding, plain(blt))
    assert not decoding.counts.drafted.any()
    assert (decoding.counts.draft_passes.draft_model == decoding.counts.rounds).all()


def test_bounds_that_cannot_be():
    for options in ({"min_survival": 1.5}, {"min_survival": 0.5, "beam": 2}):
        with pytest.raises(ValueError, match="min_survival"):
            build("eagle", blt(), draft_length=3, **options)
