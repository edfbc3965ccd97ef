"""The drafters inside a BLT: its decoder past a patch, and blocks of masked bytes."""

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
    take_all,
)
from bytelax.decode.unmasking import confidence
from bytelax.models.block_attention import Blocks
from bytelax.systems import BlockDiffusionDrafter, BltSDrafter
from bytelax.targets.blt import BLTTarget
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive

K = 4
OWN = models.replace(models.VARIANTS["own_embedding"], block_size=K)


@pytest.mark.slow  # the counts themselves: ../../test_golden_outputs.py
@pytest.mark.parametrize(("latent", "calls"), [exhaustive("reuse", 1), ("refresh", 2)])
def test_passes_of_a_round(monkeypatch, latent, calls):
    """Counted where the global transformer would run, and where it did."""
    model = models.model(models.VARIANTS["cut"])
    to = model.target()
    seen = []
    close = BLTTarget._close

    def counted(self, model, state, read, closes):
        if self.window == K + 1:  # not the prefill's
            jax.debug.callback(lambda closes: seen.append(closes.any(1)), closes, ordered=True)
        return close(self, model, state, read, closes)

    monkeypatch.setattr(BLTTarget, "_close", counted)
    drafter = BltSDrafter(K, latent=latent)
    jax.clear_caches()
    decoding = loops.run(model, drafter, rows=slice(0, 1))
    jax.effects_barrier()
    jax.clear_caches()
    rounds = int(decoding.counts.rounds[0])
    assert len(seen) == calls * rounds
    counted_here = to.passes(decoding.state)["global_passes"] + decoding.counts.draft_passes.global_
    assert int(counted_here[0]) == np.sum(seen)
    steps = decoding.counts.draft_passes.decoder + to.passes(decoding.state)["decoder_passes"]
    assert int(steps[0]) == rounds * (K + 1)  # Fast BLT's count, whichever latent


# BLT-D


def blocks(*, refresh=False):
    """Blocks that are kept whole; `refresh` takes the pending byte in first, with cells ahead."""
    drafter = BlockDiffusionDrafter(K, confidence(0.3), latent="ahead")
    to = drafter.fit(models.model(OWN).target())
    return Method(
        to, dataclasses.replace(drafter, latent="refresh") if refresh else drafter, take_all
    )


@functools.partial(jax.jit, static_argnames="method")
def decode_whole(params, ids, lengths, *, method):
    rows = len(lengths)
    law = Sampling.of(rows, allow_eos=False)
    params = Params(params)
    decoding = method.init(params, Text(ids, lengths), budget=22, sampling=law)
    return method.decode(params, decoding)


def of_the_prompts():
    return models.model(OWN).params, jnp.asarray(loops.prompts()), jnp.asarray(loops.LENGTHS)


def kept_whole(method):
    return decode_whole(*of_the_prompts(), method=method)


@pytest.mark.slow
def test_a_tpu_fills_the_blocks_with_the_kernel():
    """As lowered for it, which needs none."""
    traced = decode_whole.trace(*of_the_prompts(), method=blocks())
    program = traced.lower(lowering_platforms=("tpu",)).as_text()
    assert 'kernel_name = "unmask"' in program
    assert 'kernel_name = "verify_attention"' in program


@pytest.mark.slow
def test_the_pass_that_takes_a_block_in_starts_the_next():
    """As a pass of its own on the pending byte would; and a block costs no pass more."""
    together = kept_whole(blocks())
    apart = kept_whole(blocks(refresh=True))
    np.testing.assert_array_equal(together.text.ids, apart.text.ids)
    np.testing.assert_array_equal(together.counts.accepted, together.counts.bytes)
    rounds = together.counts.rounds
    np.testing.assert_array_equal(rounds, 6)  # 22 bytes in fours
    first, more = together.counts.draft_passes.decoder, apart.counts.draft_passes.decoder
    np.testing.assert_array_equal(more - first, rounds - 1)


@pytest.mark.slow  # compiles what the one above does
def test_no_special_is_filled_in():
    small = models.model(OWN)
    head = small.params["decoder"]["head"]["kernel"]
    decoder = small.params["decoder"] | {
        "head": {"kernel": head.at[:, : vocab.OFFSET].set(head[:, 70:71] * 9)}
    }
    params = small.params | {"decoder": decoder}
    ids, lengths = jnp.asarray(loops.prompts()), jnp.asarray(loops.LENGTHS)
    decoding = decode_whole(params, ids, lengths, method=blocks())
    for row, length in enumerate(np.asarray(decoding.text.length)):
        assert (np.asarray(decoding.text.ids)[row, 1:length] >= vocab.OFFSET).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "window"),
    [exhaustive(17, 6), exhaustive(24, 6), (31, 2), exhaustive(31, K), exhaustive(31, None)],
)
def test_a_block_in_decoding_is_a_block_in_training(start, window):
    """The logits of its cells, some of them filled: the layouts differ, the numbers do not.

    The attention window may be shorter than the block.
    """
    small = models.model(models.replace(OWN, decoder={"window": window}))
    text = jnp.asarray(models.random_text(2, 48, eos=False))
    ids = jnp.full((2, K), vocab.MASK).at[:, 1].set(70)

    def training(blt):
        known = blt.encode(text)
        cells = Blocks(ids[:, None], jnp.full((2, 1), start), jnp.full((2, 1), K))
        contexts = blt.decoder.context(known.latents)
        return blt.decoder.joint(text, contexts, cells, patch=known.patch, span=known.span)[1]

    apply = jax.jit(functools.partial(small.module.apply, method=training))
    expected = apply({"params": small.params})[:, 0]
    to = dataclasses.replace(small.target(), window=K + 1)

    @jax.jit
    def decoding(params):
        # All bytes before the block are taken in; a pending one is not, so it is given once more.
        state = to.prefill(params, Text(text, jnp.full(2, start + 1)))
        logits, _ = small.module.bind({"params": params}).decoder.extend(
            ids,
            state.decoder,
            contexts=state.contexts,
            start=state.length,
            patch=jnp.repeat(state.frontier.patches[:, None] - 1, K, axis=1),
            first=jnp.repeat(state.frontier.last_eos[:, None] + 1, K, axis=1),
            causal=0,
        )
        return logits

    np.testing.assert_allclose(decoding(small.params), expected, atol=1e-4)


@pytest.mark.slow
def test_no_patch_runs_that_closes_behind_the_draft():
    """An empty draft keeps a byte a round, whatever follows it in the window."""
    passes = loops.run(models.model(OWN), Empty(K)).state.passes
    np.testing.assert_array_equal(passes.global_, passes.patches)
    assert (passes.global_ > 0).all()
