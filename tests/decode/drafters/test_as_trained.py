"""What a trained head drafts with is what the pass of training says of the same bytes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import systems, vocab
from bytelax.decode import Sampling, Text
from bytelax.models import layers
from bytelax.models.execution import Execution
from bytelax.systems import BltSDrafter, DFlashDrafter, EagleDrafter, blt_d, blt_s
from tests.helpers import decoding as loops
from tests.helpers import heads_of_a_blt, setups
from tests.helpers.heads_of_a_blt import CONFIG, blt, with_block_table, with_latents
from tests.helpers.marks import exhaustive


def drafts(setup, rounds=4):
    """Texts as drafted upon, the drafts and their laws, of a few rounds of ragged rows."""
    method = setup.method()
    lengths = jnp.array([11, 1, 30])
    ids = jnp.asarray(loops.prompts(values=setups.VALUES)[:, :48])
    law = Sampling.of(3, temperature=1.0, allow_eos=False)
    decoding = method.init(setup.params, Text(ids, lengths), budget=16, sampling=law)
    seen, propose, verify = [], jax.jit(method.draft), jax.jit(method.verify)
    for _ in range(rounds):
        draft, state = propose(setup.params, decoding)
        seen.append((decoding.text, draft.ids, draft.log_probs))
        decoding = verify(setup.params, decoding, draft, state)
    kept = decoding.counts.accepted
    assert 0 < kept.sum() < rounds * 3 * setup.drafter.draft_length
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
def blocks(ids, pending, *, size, leak=0):
    """Laws of the bytes behind the pending ones; with a leak, later states are read."""
    model = blt().module.bind({"params": blt().params})
    sizes, block = CONFIG.heads.dflash, bound(systems.dflash)
    states = [jnp.roll(model.states(ids)[0][n], -leak, axis=1) for n in sizes.fused]
    embedded = model.embed(jnp.take_along_axis(ids, pending[:, None], axis=1))
    before = pending[:, None] + jnp.arange(sizes.block_size)
    before = jnp.take_along_axis(ids, before, axis=1)[:, None]
    logits = block(tuple(states), embedded, before, pending[:, None])
    return jax.nn.log_softmax(logits[:, 0, :size])


@functools.partial(jax.jit, static_argnames="size")
def steps(ids, pending, *, size, leak=0):
    model = blt().module.bind({"params": blt().params})
    states = model.states(ids)[0]
    states = tuple(jnp.roll(states[n], -leak, axis=1) for n in CONFIG.heads.eagle.fused)
    following = jnp.roll(ids, -1, axis=1)
    made = bound(systems.eagle)(states, model.embed(following), size)
    place = pending[:, None] - 1 + jnp.arange(size)
    out = [
        jnp.take_along_axis(logits, place[:, index, None, None], 1)[:, 0]
        for index, logits in enumerate(made)
    ]
    return jax.nn.log_softmax(jnp.stack(out, axis=1))


@functools.partial(jax.jit, static_argnames=("size", "leak", "stateless"))
def tabled_blocks(ids, pending, *, size, leak=0, stateless=False):
    """A row of the table for the byte before; with a leak, for the byte itself."""
    params = with_block_table().params
    params = heads_of_a_blt.without_state(params) if stateless else params
    model = with_block_table().module.bind({"params": params})
    cells = model.masked_blocks(ids, pending[:, None] + 1, size=size)[:, 0]
    place = pending[:, None] + jnp.arange(size) + leak
    network = blt_d.network(heads_of_a_blt.TABLED, Execution())
    row = network.bind({"params": params["heads"]["blt_d"]})(
        jnp.take_along_axis(ids, place, axis=1), cells
    )
    row = row.at[:, 0].set(0)  # the decoder has read the byte before the block
    return jax.nn.log_softmax((cells + row).at[..., : vocab.OFFSET].set(-jnp.inf))


def apart(seen, in_training, **how):
    """The largest difference of a probability in the texts that have a byte before the pending."""
    worst = 0.0
    for text, ids, laws in seen:
        size = ids.shape[1]
        expected = in_training(with_draft(text, ids), text.length - 1, size=size, **how)
        off = np.abs(np.exp(expected) - np.exp(laws)).max((1, 2))
        worst = max(worst, off[np.asarray(text.length) > 1].max())
    return worst


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "in_training", "faults"),
    [
        exhaustive(setups.SETUPS["dflash"], blocks, [{"leak": 1}]),
        # It runs as many queries as in training, and drafts with the first of them.
        (setups.on_blt(DFlashDrafter(2), blt), blocks, [{"leak": 1}]),
        (setups.SETUPS["eagle of a blt"], steps, [{"leak": 1}]),
        (
            setups.SETUPS["blt-dv in order, refreshed"],
            tabled_blocks,
            [{"leak": 1}, {"stateless": True}],
        ),
    ],
)
def test_a_draft_is_what_training_saw(make, in_training, faults):
    """Through prompts, rejected bytes and rows of several lengths; a later state would be seen."""
    seen = drafts(make())
    assert apart(seen, in_training) < 1e-5
    for fault in faults:
        assert apart(seen, in_training, **fault) > 1e-3


class NotRolledBack(DFlashDrafter):
    """The fault: what a block wrote of its own bytes stays."""

    def commit(self, inputs, draft_state, trial, count):
        return draft_state


@pytest.mark.exhaustive
def test_a_cache_that_keeps_drafted_bytes_is_seen():
    assert apart(drafts(setups.on_blt(NotRolledBack(3), blt)()), blocks) > 1e-3


# Predicted latents, by passes over whole texts.


def law_by_hand(model, text, drafted):
    """Laws of the drafted bytes of one text, which is not padded; and where patches end in it."""
    config, size = model.config, len(text)
    heads = model.variables["params"]["heads"]["blt_s"]
    network = blt_s.network(config, Execution()).bind({"params": heads})
    ids = jnp.asarray([[*text, *drafted]])
    whole = model.encode(ids)
    before = np.flatnonzero(np.asarray(whole.closes[0, : size - 1]))
    latents = list(whole.latents[0, : len(before)])
    patch = list(np.asarray(whole.patch[0, : size - 1]))
    looked_up = model.looked_up(ids)[0]
    start, laws, ends = (before[-1] + 1 if len(before) else 0), [], []

    def states(upto):
        """The decoder's last states of the first bytes, which read patches as `patch` says."""
        given = [*patch, *[patch[-1]] * (ids.shape[1] - len(patch))]
        text = whole._replace(patch=jnp.asarray([given]))
        padded = jnp.zeros_like(whole.latents).at[0, : len(latents)].set(jnp.stack(latents))
        return model.states_under(ids, text, padded)[-1][0, :upto]

    for place in range(size - 1, size - 1 + len(drafted)):
        hidden = states(place)[-1]
        cut = config.patching.max_patch_length
        ends.append(bool(network.closes(hidden, looked_up[place]) > 0))
        if ends[-1] or (cut and place + 1 - start == cut):
            recent = place + jnp.arange(1 - blt_s.RECENT, 1)
            reads = latents[-1], hidden, looked_up[jnp.maximum(recent, 0)], recent >= start
            latents.append(network.latents(*(each[None, None] for each in reads))[0, 0])
            start = place + 1
        patch.append(len(latents) - 1)
        logits = model.logits(states(place + 1)[None])[0, -1]
        laws.append(jax.nn.log_softmax(logits.at[: vocab.OFFSET].set(-jnp.inf)))
    return jnp.stack(laws), ends


def apart_by_hand(drafter, row=2):
    """The largest difference of a probability in a first draft, and the ends of patches."""
    model = with_latents().module.bind({"params": with_latents().params})
    text, drafted, laws = drafts(setups.on_blt(drafter, with_latents)())[0]
    ids = np.asarray(text.ids[row, : text.length[row]])
    expected, ends = law_by_hand(model, ids, drafted[row])
    return float(jnp.abs(jnp.exp(laws[row]) - jnp.exp(expected)).max()), ends


@pytest.mark.slow
def test_predicted_latents_are_what_passes_over_whole_texts_say():
    worst, ends = apart_by_hand(BltSDrafter(8, "predicted"))
    assert worst < 1e-5
    assert {True, False} == set(ends)


class PoolsTooMuch(BltSDrafter):
    """The fault: bytes of another patch are heard."""

    def latent_of(self, inputs, latent, hidden, recent, inside):
        return super().latent_of(inputs, latent, hidden, recent, jnp.ones_like(inside))


@pytest.mark.exhaustive
def test_bytes_of_another_patch_are_heard():
    assert apart_by_hand(PoolsTooMuch(8, "predicted"))[0] > 1e-3


@pytest.mark.slow
def test_the_weights_of_a_head_are_those_that_its_passes_read():
    params = blt().params
    heads = {name: layers.weights(part) for name, part in params["heads"].items()}
    assert EagleDrafter(3).weights_read((), params) == heads["eagle"] > 0
    assert DFlashDrafter(3).weights_read((), params) == heads["dflash"] > 0
    assert systems.LookupDrafter(3, 2, 5).weights_read((), params) == 0
    model = systems.DraftModelDrafter(blt().target(), 3)
    assert model.weights_read({"kernel": jnp.ones((2, 3))}, params) == 6
