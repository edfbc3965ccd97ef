"""Drafts on predicted latents: the output stays that of plain decoding, and drafts are as meant."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bytelax import vocab
from bytelax.decode import (
    Empty,
    Method,
    Params,
    Sampling,
    Text,
    rejection,
)
from bytelax.models import ring
from bytelax.models.execution import Execution
from bytelax.options import BltSHead, HeadsConfig
from bytelax.systems import BltSDrafter, blt_s
from bytelax.systems.blt_s import RECENT
from bytelax.targets.blt import BLTTarget
from bytelax.testing import distance, exact_law, target_law
from tests.helpers import decoding as loops
from tests.helpers import heads_of_a_blt
from tests.helpers.heads_of_a_blt import LATENTS, with_latents
from tests.helpers.models_for_tests import VARIANTS, replace

K = 5
HEADS = HeadsConfig(blt_s=BltSHead(ffn_dim=24))
# A decoder that reads encoder states, patches of a fixed length, and patches that are cut.
CONFIGS = {
    "own embedding": LATENTS,
    **{name: replace(VARIANTS[name], heads=HEADS) for name in ("base", "stride", "cut")},
}


def prompts(name):
    return heads_of_a_blt.prompts() if name == "own embedding" else loops.prompts()


def stored(name, dtype):
    own = with_latents(CONFIGS[name])
    return dataclasses.replace(own, params=jax.tree.map(lambda x: x.astype(dtype), own.params))


@functools.cache
def reference(name, dtype="float32"):
    return loops.run(stored(name, dtype), Empty(K), ids=prompts(name))


def run(drafter=None, name="own embedding", dtype="float32", **how):
    ids = how.pop("ids", prompts(name))
    return loops.run(stored(name, dtype), drafter or BltSDrafter(K, "predicted"), ids=ids, **how)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("own embedding", "float32"), ("own embedding", "bfloat16"), ("cut", "float32")],
)
def test_greedy_output_is_that_of_the_empty_draft(name, dtype):
    decoding = run(name=name, dtype=dtype)
    loops.assert_same(decoding, reference(name, dtype))
    assert 0 < decoding.counts.accepted.sum() < decoding.counts.drafted.sum()
    predicted = decoding.counts.draft_passes.draft_model
    assert (predicted > 0).all()
    assert (predicted < decoding.counts.draft_passes.decoder).all()


@pytest.mark.slow
def test_rows_are_apart_and_padding_is_not_read():
    first, garbage = run(), prompts("own embedding")
    for row, length in enumerate(loops.LENGTHS):
        garbage[row, length:] = garbage[row, length - 3]
    loops.assert_same(run(ids=garbage), first)
    order = np.array([2, 0, 1])
    moved = run(order=order)
    np.testing.assert_array_equal(moved.log_probs, first.log_probs[order])
    np.testing.assert_array_equal(moved.counts.accepted, first.counts.accepted[order])


# What is drafted, by passes over whole texts.


def law_by_hand(model, text, drafted, known):
    """Laws of the drafted bytes of one text, which is not padded; and where patches end in it."""
    config, size = model.config, len(text)
    heads = model.variables["params"]["heads"]["blt_s"]
    network = blt_s.network(config, Execution()).bind({"params": heads})
    ids = jnp.asarray([[*text, *drafted]])
    whole = model.encode(ids)
    latents = list(whole.latents[0, :known])
    patch = list(np.asarray(whole.patch[0, : size - 1]))
    looked_up = model.looked_up(ids)[0]
    before = np.flatnonzero(np.asarray(whole.closes[0, : size - 1]))
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
        ends.append(bool(network.ends(hidden, looked_up[place]) > 0))
        if ends[-1] or (cut and place + 1 - start == cut):
            recent = place + jnp.arange(1 - RECENT, 1)
            reads = latents[-1], hidden, looked_up[jnp.maximum(recent, 0)], recent >= start
            latents.append(network.following(*(each[None, None] for each in reads))[0, 0])
            start = place + 1
        patch.append(len(latents) - 1)
        logits = model.logits(states(place + 1)[None])[0, -1]
        laws.append(jax.nn.log_softmax(logits))
    return jnp.stack(laws), ends


def drafted_once(drafter, row):
    """A text of one row, the draft behind it, its laws, and the patches closed before."""
    own = with_latents()
    method = Method(own.target(), drafter)
    ids, length = jnp.asarray(prompts("own embedding")[row : row + 1]), loops.LENGTHS[row : row + 1]
    law = Sampling.of(1, temperature=1.0, allow_eos=False)
    params = Params(own.params)

    @jax.jit
    def draft(params):
        decoding = method.init(params, Text(ids, jnp.asarray(length)), budget=9, sampling=law)
        found, _ = method.draft(params, decoding)
        return found.ids, found.log_probs, decoding.state.frontier.patches

    drafted, laws, known = draft(params)
    return np.asarray(ids[0, : length[0]]), drafted[0], laws[0], int(known[0])


def apart(drafter, row=2):
    """The largest difference of a probability, and the ends of patches."""
    model = with_latents().module.bind({"params": with_latents().params})
    text, drafted, laws, known = drafted_once(drafter, row)
    expected, ends = law_by_hand(model, text, drafted, known)
    kept = jnp.exp(expected).at[:, : vocab.OFFSET].set(0)
    kept /= kept.sum(-1, keepdims=True)
    return float(jnp.abs(jnp.exp(laws) - kept).max()), ends


@pytest.mark.slow
def test_drafts_are_what_passes_over_whole_texts_say():
    worst, ends = apart(BltSDrafter(K, "predicted"))
    assert worst < 1e-5
    assert {True, False} == set(ends)


class PoolsTooMuch(BltSDrafter):
    def latent_of(self, inputs, latent, hidden, recent, inside):
        return super().latent_of(inputs, latent, hidden, recent, jnp.ones_like(inside))


@pytest.mark.exhaustive
def test_bytes_of_another_patch_are_heard():
    assert apart(PoolsTooMuch(K, "predicted"))[0] > 1e-3


# Faults.


class LeavesALatent(BltSDrafter):
    """Leaves a predicted latent where the verifier reads the one of the latest closed patch."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        state = inputs.state
        patch = state.frontier.patches[:, None] - 1
        other = jax.tree.map(lambda slots: ring.at(slots, patch) + 1, state.contexts)
        contexts = jax.tree.map(
            lambda slots, new: ring.put(slots, new, patch), state.contexts, other
        )
        return dataclasses.replace(
            draft, state=dataclasses.replace(draft.state, contexts=contexts)
        ), draft_state


@pytest.mark.exhaustive
def test_a_latent_that_the_verifier_reads_is_seen():
    decoding = run(LeavesALatent(K, "predicted"))
    assert not np.array_equal(decoding.log_probs, reference("own embedding").log_probs)


class EndsByTheByteDrawn(BltSDrafter):
    """Takes another law for a byte because of that byte itself, as if a patch had ended there."""

    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        odd = (draft.ids % 2 == 1)[..., None]
        flat = jnp.full_like(draft.log_probs, -jnp.log(3.0)).at[..., : vocab.OFFSET].set(-jnp.inf)
        return dataclasses.replace(draft, log_probs=jnp.where(odd, flat, draft.log_probs)), ()


@pytest.mark.exhaustive
def test_a_boundary_by_a_byte_that_is_not_drawn_yet_is_seen():
    own = with_latents()
    target = BLTTarget(own.module, chunk=1, prefill_width=4, prefill_chunk=2)
    how = {
        "prompt": [vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1], "new_bytes": 2, "rows": 64,
        "temperature": 1.0, "allow_eos": False,
    }  # fmt: skip
    plain = target_law(Method(target), Params(own.params), **how)

    def law(drafter):
        return exact_law(Method(target, drafter, rejection), Params(own.params), **how)

    assert distance(law(BltSDrafter(2, "predicted")), plain) < 1e-6
    assert distance(law(EndsByTheByteDrawn(2, "predicted")), plain) > 1e-3


def test_a_model_without_the_head_is_refused():
    plain = heads_of_a_blt.blt()
    with pytest.raises(ValueError, match="no head of latents"):
        Method(plain.target(), BltSDrafter(K, "predicted"))
