"""Plain decoding whose rows wait for one another: same bytes, fewer runs of the global model."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Text, unmasking
from bytelax.systems import BlockDiffusionDrafter, BltSDrafter
from tests.helpers import models_for_tests as models

PROMPTS = [b"Ragged prompts: ", b"and ", "naïve 日本".encode(), b"1 + 1 = "]
NEW = 24


@functools.cache
def decoded(synchronous, temperature=0.0):
    return bytelax.generate(
        models.model(models.BASE), PROMPTS, max_new_bytes=NEW, allow_eos=False, logprobs=True,
        temperature=temperature, synchronous=synchronous,
    )  # fmt: skip


def closing(prompt, output):
    """bool[NEW]: whether a patch ends with the byte that each pass takes in."""
    ids = np.array(vocab.encode(prompt + output)[:-1])
    lengths = models.model(models.BASE).patch_lengths(ids)
    ends = np.isin(np.arange(len(ids)), np.cumsum(lengths)[:-1] - 1)
    return ends[-NEW:]


def waited(closes, share):
    """Windows of the batch, and those in which the global transformer ran."""
    done = np.zeros(len(closes), int)
    windows = together = 0
    while (running := done < NEW).any():
        closed = running & closes[np.arange(len(closes)), np.minimum(done, NEW - 1)]
        goes_on = closed.sum() >= share * running.sum()
        together += goes_on and closed.any()
        done += running & (~closed | goes_on)
        windows += 1
    return windows, together


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_rows_that_wait_write_the_same(share):
    plain, waiting = decoded(0.0), decoded(share)
    assert waiting.lossless and waiting.bytes == plain.bytes
    for one, other in zip(plain.results, waiting.results, strict=True):
        np.testing.assert_array_equal(one.log_probs, other.log_probs)
        for name in ("rounds", "decoder_passes", "encoder_passes", "global_passes", "patches"):
            assert getattr(one.stats, name) == getattr(other.stats, name)


@pytest.mark.slow
def test_chance_does_not_wait():
    assert decoded(1.0, temperature=0.8).bytes == decoded(0.0, temperature=0.8).bytes


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_the_batch_makes_the_passes_that_waiting_asks_for(share):
    out = decoded(share)
    pairs = zip(PROMPTS, out.bytes, strict=True)
    closes = np.stack([closing(prompt, output) for prompt, output in pairs])
    windows, together = waited(closes, share)
    assert (out.stats.batch_windows, out.stats.global_chunks) == (windows, together)
    alone = closes.sum(1).max()
    assert alone <= together and (share < 1 or together < closes.any(0).sum())


@pytest.mark.parametrize(
    "drafter",
    [BltSDrafter(3, "refresh"), BlockDiffusionDrafter(3, unmasking.ONE_STEP, "refresh")],
    ids=["past the boundary", "a block"],
)
def test_a_draft_on_a_new_latent_waits_for_no_row(drafter):
    model = models.model(models.VARIANTS["own_embedding"])
    text = Text(models.random_text(12, 64, eos=False), np.arange(9, 21))
    params, laws = Params(model.params), []
    for share in (0.0, 1.0):
        method = Method(dataclasses.replace(model.target(), synchronous=share), drafter)
        warm = Sampling.of(12, temperature=1.0)
        decoding = jax.jit(method.init)(params, text, budget=9, sampling=warm)
        laws.append(jax.jit(method.draft)(params, decoding)[0].log_probs)
    np.testing.assert_array_equal(*laws)


def test_cells_ahead_wait_for_no_row():
    model = models.model(models.VARIANTS["own_embedding"])
    target = dataclasses.replace(model.target(), synchronous=1.0)
    with pytest.raises(ValueError, match="rows that wait have no cells ahead"):
        Method(target, BlockDiffusionDrafter(3, unmasking.ONE_STEP, "ahead"))


@pytest.mark.parametrize(
    ("config", "share", "says"),
    [(models.BASE, 1.5, "a share of the rows"), (models.BYTE_LM, 1.0, "Byte Latent Transformer")],
)
def test_refusals(config, share, says):
    with pytest.raises(ValueError, match=says):
        bytelax.generate(models.model(config), ["a"], synchronous=share)
