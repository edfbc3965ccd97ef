"""Nested speculation: the draft is the local decoder's own, whatever drafts for it."""

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
    process_logits,
)
from bytelax.systems import BltSDrafter, DraftModelDrafter, LookupDrafter, NestedDrafter
from bytelax.targets.blt import BLTTarget
from bytelax.targets.local_decoder import LocalDecoderTarget, reading_latents
from bytelax.testing import TableDrafter, distance, exact_law, table
from tests.helpers import decoding as loops
from tests.helpers.heads_of_a_blt import prompts, with_latents
from tests.helpers.models_for_tests import BYTE_LM, VARIANTS, model, random_text, replace

EXACT, FAULTY = 1e-6, 1e-3
COOL = {"temperature": 0.8, "top_p": 0.9}
PROMPT = [vocab.BOS, vocab.OFFSET, vocab.OFFSET + 1]
DRAFT = 9  # the decoder's window of 6 and these and the pending byte fill a ring of 16 slots
READS = {"own embedding": "own_embedding", "encoder states": "base"}
EACH = ["own embedding", pytest.param("encoder states", marks=pytest.mark.exhaustive)]


def small():
    config = replace(
        VARIANTS["own_embedding"], vocab_size=7, patcher={"vocab_size": 7}, patching={}
    )
    return model(config, scale=2.0)


def law_of(target, drafter):
    blt = small()
    how = {"prompt": PROMPT, "new_bytes": 3, "rows": 64} | COOL
    return exact_law(Method(target, drafter), Params(blt.params, table(3, 1)), **how)


def whole():
    return BLTTarget(small().module, chunk=1, prefill_width=4, prefill_chunk=2)


@functools.cache
def law_of_the_model():
    return law_of(whole(), Empty())


def decoded(variant, drafter, *, window=None):
    """Greedy rows of unequal length that go on in their own words."""
    blt = model(VARIANTS[READS[variant]])
    target = BLTTarget(blt.module, chunk=2, prefill_width=16, prefill_chunk=4)
    method = Method(target, drafter, window=window)
    ids = random_text(3, 100, eos=False)

    @jax.jit
    def run(params, text):
        sampling = Sampling.of(3, allow_eos=False)
        return method.decode(params, method.init(params, text, budget=60, sampling=sampling))

    return run(Params(blt.params), Text(ids, np.array([40, 23, 9], np.int32)))


@pytest.fixture(scope="module", params=EACH)
def variant(request):
    return request.param


@pytest.fixture(scope="module")
def plain(variant):
    return decoded(variant, Empty(), window=DRAFT + 1)


@pytest.mark.slow
def test_the_output_is_that_of_the_whole_model(variant, plain):
    nested = decoded(variant, NestedDrafter(DRAFT, LookupDrafter(5, shortest=1)))
    np.testing.assert_array_equal(nested.text.ids, plain.text.ids)
    assert (nested.counts.draft_passes.decoder < DRAFT * nested.counts.rounds).all()


@pytest.mark.slow
def test_with_nothing_to_draft_for_it_the_decoder_drafts_what_blt_s_drafts(variant):
    nested, blt_s = (
        decoded(variant, NestedDrafter(DRAFT, Empty())),
        decoded(variant, BltSDrafter(DRAFT)),
    )
    np.testing.assert_array_equal(nested.text.ids, blt_s.text.ids)
    jax.tree.map(np.testing.assert_array_equal, nested.counts, blt_s.counts)


@pytest.mark.exhaustive
def test_a_window_that_writes_beyond_the_room_is_seen(variant, plain, monkeypatch):
    begin = LocalDecoderTarget.begin

    def without_end(target, *given):
        ahead = begin(target, *given)
        return dataclasses.replace(ahead, begin=ahead.begin + 100)

    monkeypatch.setattr(LocalDecoderTarget, "begin", without_end)
    nested = decoded(variant, NestedDrafter(DRAFT, LookupDrafter(5, shortest=1)))
    assert not np.array_equal(nested.text.ids, plain.text.ids)


@pytest.mark.slow
def test_the_joint_distribution_is_the_targets_two_levels_deep():
    assert distance(law_of(whole(), NestedDrafter(2, TableDrafter(1))), law_of_the_model()) < EXACT


@pytest.mark.slow
def test_the_local_decoder_is_a_target():
    alone = LocalDecoderTarget(small().module, room=3)
    assert distance(law_of(alone, TableDrafter(2)), law_of(alone, Empty())) < EXACT


def over_a_draft_model():
    """Three byte values, as the BLT has; drafts that are often right, and not always."""
    own = model(replace(BYTE_LM, vocab_size=7))
    return DraftModelDrafter(own.target(), 1), own.params


@pytest.mark.slow
def test_a_draft_model_reads_no_byte_twice():
    """Its passes in a round do not grow with the text."""
    drafter, own = over_a_draft_model()
    blt, outer, new_bytes = small(), 4, 60
    method = Method(whole(), NestedDrafter(outer, drafter))
    text = Text(np.full((1, 3 + new_bytes), vocab.OFFSET, np.int32), np.array([3], np.int32))

    @jax.jit
    def run(params, text):
        sampling = Sampling.of(1, temperature=1.0, allow_eos=False)

        def step(decoding, _):
            after = method.round(params, decoding)
            return after, after.counts.draft_passes.draft_model

        begin = method.init(params, text, budget=new_bytes, sampling=sampling)
        return jax.lax.scan(step, begin, None, length=new_bytes)

    after, passes = run(Params(blt.params, own), text)
    assert after.counts.bytes == new_bytes
    # At most `outer` rounds of a pass each, and before them the bytes that the last one kept.
    assert np.diff(passes[:, 0], prepend=0).max() <= outer + (outer + 1) // 2 + 1


@pytest.mark.exhaustive
def test_the_joint_distribution_over_a_draft_model():
    drafter, own = over_a_draft_model()
    how = {"prompt": PROMPT, "new_bytes": 3, "rows": 64} | COOL
    law = exact_law(Method(whole(), NestedDrafter(2, drafter)), Params(small().params, own), **how)
    assert distance(law, law_of_the_model()) < EXACT


class AnotherLaw(NestedDrafter):
    def propose(self, inputs, draft_state):
        draft, draft_state = super().propose(inputs, draft_state)
        raw = process_logits(draft.log_probs, Sampling.of(len(draft.ids), temperature=2.0))
        return dataclasses.replace(draft, log_probs=raw), draft_state


@pytest.mark.exhaustive
def test_a_wrong_distribution_is_seen():
    assert distance(law_of(whole(), AnotherLaw(2, TableDrafter(1))), law_of_the_model()) > FAULTY


# On predicted latents.


def on_predicted(drafter):
    return loops.run(with_latents(), drafter, ids=prompts())


@functools.cache
def one_by_one():
    return on_predicted(BltSDrafter(DRAFT, "predicted"))


@pytest.mark.slow
def test_the_decoder_drafts_what_it_drafts_byte_by_byte():
    """Greedy drafts are the same, whatever drafts for the decoder; boundaries cut its windows."""
    nested = on_predicted(NestedDrafter(DRAFT, LookupDrafter(4, shortest=1), "predicted"))
    single = one_by_one()
    loops.assert_same(nested, loops.run(with_latents(), Empty(DRAFT), ids=prompts()))
    for name in ("rounds", "accepted_by_position", "drafted_by_position"):
        mine, theirs = getattr(nested.counts, name), getattr(single.counts, name)
        np.testing.assert_array_equal(mine, theirs)
    mine, theirs = nested.counts.draft_passes, single.counts.draft_passes
    np.testing.assert_array_equal(mine.draft_model, theirs.draft_model)
    assert (mine.draft_model > 0).all()
    assert (mine.decoder < theirs.decoder).all()


@pytest.mark.exhaustive
def test_windows_that_go_on_behind_a_boundary_are_seen(monkeypatch):
    monkeypatch.setattr(
        LocalDecoderTarget, "known", lambda target, trial: trial.known * 0 + trial.logits.shape[1]
    )
    nested = on_predicted(NestedDrafter(DRAFT, LookupDrafter(5, shortest=1), "predicted"))
    same = nested.counts.accepted_by_position == one_by_one().counts.accepted_by_position
    assert not same.all()


def law_over_latents(target, drafter):
    how = {"prompt": PROMPT, "new_bytes": 3, "rows": 64, "allow_eos": False} | COOL
    return exact_law(Method(target, drafter), Params(with_latents().params, table(3, 1)), **how)


@functools.cache
def alone():
    return reading_latents(LocalDecoderTarget(with_latents().module, room=3, predicts=True))


@pytest.mark.exhaustive
def test_the_local_decoder_on_predicted_latents_is_a_target():
    assert distance(law_over_latents(alone(), TableDrafter(2)), _byte_by_byte()) < EXACT


@functools.cache
def _byte_by_byte():
    return law_over_latents(alone(), Empty())


class LosesTheByteThatCloses(LocalDecoderTarget):
    """Ends a window before a byte because of what that byte is."""

    def known(self, trial):
        return jnp.maximum(trial.known - 1, 1)


@pytest.mark.exhaustive
def test_a_window_that_ends_by_the_byte_it_loses_is_seen():
    """Wherever the second byte closes its patch, another one is drawn in its place."""
    faulty = LosesTheByteThatCloses(**vars(alone()))
    assert distance(law_over_latents(faulty, TableDrafter(2)), _byte_by_byte()) > FAULTY


@pytest.mark.slow
def test_the_joint_distribution_on_predicted_latents():
    target = BLTTarget(with_latents().module, chunk=1, prefill_width=4, prefill_chunk=2)
    nested = NestedDrafter(2, TableDrafter(1), "predicted")
    plain = law_over_latents(target, Empty())
    assert distance(law_over_latents(target, nested), plain) < EXACT


def test_a_model_without_heads_of_latents_is_refused():
    with pytest.raises(ValueError, match="no head of latents"):
        Method(small().target(), NestedDrafter(2, Empty(), "predicted"))
