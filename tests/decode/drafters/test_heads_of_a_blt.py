"""Heads of a BLT draft what they were trained to, and its output stays that of plain decoding."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import systems, vocab
from bytelax.decode import Drafter, Empty, Method, Params, Sampling, Text
from bytelax.models import layers
from bytelax.models.execution import Execution
from bytelax.systems import DraftModelDrafter, LookupDrafter
from tests.helpers import decoding as loops
from tests.helpers import heads_of_a_blt
from tests.helpers.heads_of_a_blt import (
    CONFIG,
    DRAFTERS,
    WIDTH,
    blt,
    dflash,
    eagle,
    prompts,
    shorter_dflash,
)


@functools.cache
def reference():
    return loops.run(blt(), Empty(WIDTH), ids=prompts())


@pytest.mark.slow  # of a byte transformer: test_self_drafting.py
@pytest.mark.parametrize("make", DRAFTERS, ids=lambda make: make.__name__)
def test_greedy_output_is_that_of_the_empty_draft(make):
    decoding = loops.run(blt(), make(), ids=prompts())
    loops.assert_same(decoding, reference())
    assert 0 < decoding.counts.accepted.sum() < decoding.counts.drafted.sum()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [pytest.param(dflash, marks=pytest.mark.exhaustive), eagle],
    ids=lambda make: make.__name__,
)
def test_rows_are_apart_and_padding_is_not_read(make):
    first = loops.run(blt(), make(), ids=prompts())
    garbage = prompts()
    for row, length in enumerate(loops.LENGTHS):
        garbage[row, length:] = garbage[row, length - 3]
    loops.assert_same(loops.run(blt(), make(), ids=garbage), first)
    order = np.array([2, 0, 1])
    moved = loops.run(blt(), make(), ids=prompts(), order=order)
    np.testing.assert_array_equal(moved.log_probs, first.log_probs[order])
    np.testing.assert_array_equal(moved.counts.drafted, first.counts.drafted[order])
    np.testing.assert_array_equal(moved.counts.accepted, first.counts.accepted[order])


# What a drafter says is what the pass of training says of the same bytes.


@dataclasses.dataclass(frozen=True)
class Watched(Drafter):
    """A drafter whose state holds its last draft too."""

    inner: object

    @property
    def draft_length(self):
        return self.inner.draft_length

    def fit(self, target):
        return self.inner.fit(target)

    def init(self, inputs):
        shape = (inputs.text.ids.shape[0], self.draft_length)
        laws = jnp.zeros((*shape, heads_of_a_blt.CONFIG.vocab_size), jnp.float32)
        return self.inner.init(inputs), jnp.zeros(shape, jnp.int32), laws

    def propose(self, inputs, draft_state):
        draft, inner = self.inner.propose(inputs, draft_state[0])
        return draft, (inner, draft.ids, draft.log_probs)

    def commit(self, inputs, draft_state, trial, count):
        inner, *draft = draft_state
        return self.inner.commit(inputs, inner, trial, count), *draft


def drafts(drafter, rounds=4):
    """Texts as drafted upon, the drafts and their laws, of a few rounds of ragged rows."""
    method = Method(blt().target(), Watched(drafter))
    lengths = jnp.array([11, 1, 30])
    ids = jnp.asarray(prompts()[:, :48])
    law = Sampling.of(3, temperature=1.0, allow_eos=False)
    params = Params(blt().params)
    decoding = method.init(params, Text(ids, lengths), budget=16, sampling=law)
    seen, step = [], jax.jit(method.round)
    for _ in range(rounds):
        text = decoding.text
        decoding = step(params, decoding)
        seen.append((text, *decoding.draft_state[1:]))
    kept = decoding.counts.accepted
    assert 0 < kept.sum() < rounds * 3 * drafter.draft_length
    return seen


def with_draft(text, ids):
    """The text, then the drafted ids, then nothing."""
    places = jnp.arange(text.ids.shape[1])
    known = jnp.where(places < text.length[:, None], text.ids, vocab.BOE)
    place = text.length[:, None] + jnp.arange(ids.shape[1])
    return known.at[jnp.arange(len(ids))[:, None], place].set(ids)


def bound(system):
    """The network of a system, with its parameters."""
    name = system.__name__.rpartition(".")[2]
    return system.network(CONFIG, Execution()).bind({"params": blt().params["heads"][name]})


@functools.partial(jax.jit, static_argnames="size")
def blocks_in_training(ids, pending, *, size, leak=0):
    """Laws of the bytes behind the pending ones; with a leak, later states are read."""
    model = blt().module.bind({"params": blt().params})
    sizes, block = CONFIG.heads.dflash, bound(systems.dflash)
    states = [jnp.roll(model.states(ids)[0][n], -leak, axis=1) for n in sizes.fused]
    embedded = model.embed(jnp.take_along_axis(ids, pending[:, None], axis=1))
    before = pending[:, None] + jnp.arange(sizes.block_size)
    before = jnp.take_along_axis(ids, before, axis=1)[:, None]
    out = block(tuple(states), embedded, before, pending[:, None])
    return jax.nn.log_softmax(out.logits[:, 0, :size])


@functools.partial(jax.jit, static_argnames="size")
def layers_in_training(ids, pending, *, size, leak=0):
    model = blt().module.bind({"params": blt().params})
    states = model.states(ids)[0]
    states = tuple(jnp.roll(states[n], -leak, axis=1) for n in CONFIG.heads.eagle.fused)
    following = jnp.roll(ids, -1, axis=1)
    steps = bound(systems.eagle)(states, model.embed(following), following, size)
    place = pending[:, None] - 1 + jnp.arange(size)
    out = [
        jnp.take_along_axis(one.logits, place[:, index, None, None], 1)[:, 0]
        for index, one in enumerate(steps)
    ]
    return jax.nn.log_softmax(jnp.stack(out, axis=1))


def apart(seen, in_training, **how):
    """The largest difference of a probability in the texts that have a byte before the pending."""
    worst = 0.0
    for text, ids, laws in seen:
        size = ids.shape[1]
        expected = in_training(with_draft(text, ids), text.length - 1, size=size, **how)
        off = np.abs(np.exp(expected) - np.exp(laws)).max((1, 2))
        worst = max(worst, off[np.asarray(text.length) > 1].max())
    return worst


IN_TRAINING = [
    pytest.param(dflash, blocks_in_training, marks=pytest.mark.exhaustive),
    (shorter_dflash, blocks_in_training),
    (eagle, layers_in_training),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "in_training"), IN_TRAINING)
def test_a_draft_is_what_training_saw(make, in_training):
    """Through prompts, rejected bytes and rows of several lengths; a later state would be seen."""
    seen = drafts(make())
    assert apart(seen, in_training) < 1e-5
    assert apart(seen, in_training, leak=1) > 1e-3


@dataclasses.dataclass(frozen=True)
class NotRolledBack(type(dflash())):
    """The fault: what a block wrote of its own bytes stays."""

    def commit(self, inputs, draft_state, trial, count):
        return draft_state


@pytest.mark.exhaustive
def test_a_cache_that_keeps_drafted_bytes_is_seen():
    assert apart(drafts(NotRolledBack(WIDTH)), blocks_in_training) > 1e-3


def test_the_weights_of_a_head_are_those_that_its_passes_read():
    params = blt().params
    heads = {name: layers.weights(part) for name, part in params["heads"].items()}
    assert eagle().weights_read((), params) == heads["eagle"] > 0
    assert dflash().weights_read((), params) == heads["dflash"] > 0
    assert LookupDrafter(3, 2, 5).weights_read((), params) == 0
    assert (
        DraftModelDrafter(blt().target(), 3).weights_read({"kernel": jnp.ones((2, 3))}, params) == 6
    )
