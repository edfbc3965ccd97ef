"""Scores of texts and of continuations: the parallel pass's law, whatever else is in the batch."""

import functools
import math
import tracemalloc

import chex
import jax
import numpy as np
import pytest

import bytelax
from bytelax import score, score_many, vocab
from bytelax.scoring import score_continuations, scores
from tests.helpers import models_for_tests as models
from tests.helpers.marks import slow

WINDOW, BATCH = 63, 4  # nearly everything here runs one program a model
TEXTS = [
    b"one", b"\x00\xff\x80 not UTF-8 \xc3", b"", b"x" * 63, "naïve 日本語".encode(),
    bytes(range(200, 256)), b"\x00", b"the last of them, and by itself in its batch",
]  # fmt: skip
LONG = np.random.default_rng(5).integers(0, 256, 201).astype(np.uint8).tobytes()
small = functools.partial(score, window=WINDOW, batch=BATCH)


@pytest.fixture(scope="module", params=[models.BYTE_LM, slow(models.BASE)])
def model(request):
    return models.model(request.param)


def test_the_parallel_pass(model):
    """The log-softmax, here in float64, of the logits of bytes and EOS."""
    ids = np.zeros((len(TEXTS), WINDOW + 1), np.int32)
    for row, text in zip(ids, TEXTS, strict=True):
        row[: len(text) + 1] = vocab.encode(text)
    logits = np.array(model.logits(ids)[:, :-1], np.float64)
    logits[..., [vocab.BOE, vocab.BOS, vocab.MASK]] = -np.inf
    law = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    expected = np.take_along_axis(law, ids[:, 1:, None], axis=-1)[..., 0]
    for row, document in zip(expected, small(model, TEXTS).documents, strict=True):
        found = document.log_probs
        np.testing.assert_allclose(found, row[: len(found)], rtol=0, atol=2e-5)
    assert [document.bytes for document in small(model, TEXTS).documents] == [*map(len, TEXTS)]


def test_sums(model):
    found = small(model, TEXTS)
    for document in found.documents:
        assert document.log_prob == math.fsum(map(float, document.log_probs))
        bits = -document.log_prob / math.log(2) / document.bytes if document.bytes else math.nan
        assert document.bits_per_byte == pytest.approx(bits, nan_ok=True)
    assert found.log_prob == sum(document.log_prob for document in found.documents)
    assert found.bytes == sum(map(len, TEXTS))
    assert found.bits_per_byte == pytest.approx(-found.log_prob / found.bytes / math.log(2))
    assert found.to_dict().keys() == {"bytes", "log_prob", "bits_per_byte"}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers(value):
    broken = models.broken_after("d", models.model(models.BYTE_LM), value)
    found = score_many(broken, [b"abc", b"abcdef"], window=WINDOW, batch=BATCH)
    assert np.isfinite(next(found).log_prob)
    with pytest.raises(ValueError, match="logits of text 1 are NaN or infinite"):
        next(found)


def test_nothing_to_score():
    model = models.model(models.BYTE_LM)
    (empty,) = small(model, [b""]).documents
    assert empty.bytes == 0 and empty.log_prob == 0 and math.isnan(empty.bits_per_byte)
    none = small(model, [])
    assert none.bytes == 0 and none.log_prob == 0 and math.isnan(none.bits_per_byte)


@pytest.mark.slow
def test_what_else_is_scored_changes_nothing(model):
    found = small(model, TEXTS).documents
    (alone,) = small(model, TEXTS[3:4]).documents
    np.testing.assert_array_equal(alone.log_probs, found[3].log_probs)
    turned = small(model, [LONG, *TEXTS[::-1]]).documents[:0:-1]
    for a, b in zip(turned, found, strict=True):
        np.testing.assert_array_equal(a.log_probs, b.log_probs)
    other = score(model, TEXTS, window=WINDOW, batch=3).documents  # another program
    for a, b in zip(other, found, strict=True):
        np.testing.assert_allclose(a.log_probs, b.log_probs, rtol=0, atol=1e-4)


def test_padding_is_not_seen(model):
    """Neither what follows a text in its row nor the rows without one."""
    tell = scores.likelihoods(model)
    clean = np.zeros((BATCH, WINDOW + 1), np.int32)
    clean[0, :31] = vocab.encode(LONG[:30])
    garbage = np.random.default_rng(1).integers(0, vocab.SIZE, clean.shape, np.int32)
    garbage[0, :31] = clean[0, :31]
    for a, b in zip(tell(clean), tell(garbage), strict=True):
        np.testing.assert_array_equal(a[0, :30], b[0, :30])


@pytest.mark.parametrize("stride", [None, 1, 20, 63])
def test_windows_are_those_cut_by_hand(model, stride):
    text = LONG if stride != 1 else LONG[:80]
    (found,) = small(model, [text], stride=stride).documents
    step = stride or 32
    (first,) = small(model, [text[:WINDOW]]).documents
    expected = [first.log_probs]
    begins = range(WINDOW, len(text), step)
    pieces = [text[begin - (WINDOW - step) : begin + step] for begin in begins]
    for piece in small(model, pieces).documents:
        expected.append(piece.log_probs[WINDOW - step :])
    np.testing.assert_array_equal(found.log_probs, np.concatenate(expected))


def test_generate_reports_the_same():
    model = models.chain(b"abcdefgh", loop=False)
    (result,) = bytelax.generate(model, ["ab"], max_new_bytes=4, logprobs=True).results
    (found,) = small(model, ["ab" + result.text]).documents
    np.testing.assert_allclose(found.log_probs[2:], result.log_probs, rtol=0, atol=1e-5)
    # The byte after "h" is an EOS, which is not scored but has its share of the law.
    (after,) = small(model, ["habc"]).documents
    assert after.log_probs[1] < -8


def test_one_program_a_shape(monkeypatch):
    """However many texts, of whatever lengths, in whatever order."""
    traced = []

    def likelihoods(module, params, ids):
        traced.append(ids.shape)
        return likelihoods.plain(module, params, ids)

    likelihoods.plain = scores._likelihoods
    once_each = jax.jit(chex.assert_max_traces(likelihoods, n=2), static_argnums=0)
    monkeypatch.setattr(scores, "_compiled", lambda: once_each)
    model = models.model(models.BYTE_LM)
    chex.clear_trace_counter()
    for count in (1, 3, 9):
        score(model, [LONG[:n] for n in range(5, 5 + count)] + [LONG[:90], LONG], window=127)
    score(model, [b""], window=127)
    assert sorted(traced) == [(8, 64), (8, 128)]


def test_memory_does_not_grow_with_the_text():
    """Logits of the whole text would be a thousand bytes for each of its own."""
    model = models.model(models.BYTE_LM)
    text = LONG * 20
    small(model, [text], stride=WINDOW)  # compiles
    before = sum(x.nbytes for x in jax.live_arrays())
    live = []
    tracemalloc.start()
    (found,) = score_many(
        model, [text], window=WINDOW, stride=WINDOW, batch=BATCH,
        progress=lambda _: live.append(sum(x.nbytes for x in jax.live_arrays()) - before),
    )  # fmt: skip
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.bytes == len(text) and len(live) == -(-len(text) // WINDOW)
    logits = 4 * vocab.SIZE * len(text)
    assert max(live) < logits / 10
    assert peak < logits / 10


def test_bad_requests_are_told_at_once():
    with pytest.raises(ValueError, match="window"):
        score_many(models.model(models.BYTE_LM), [b"x"], window=5000)


# Continuations


def test_continuations_are_scored_as_the_ends_of_texts(model):
    pairs = [(b"", b"one"), (b"a context ", b"and more"), (b"x" * 60, b"longer than the rest")]
    whole = score(model, [context + text for context, text in pairs], batch=2).documents
    found = score_continuations(model, pairs, batch=2)
    for (_, text), expected, scored in zip(pairs, whole, found, strict=True):
        assert scored.log_prob == pytest.approx(expected.log_probs[-len(text) :].sum(), abs=1e-4)
        assert not scored.greedy


def test_what_greedy_decoding_writes_is_greedy():
    model = models.chain(b"abcdefgh")
    out = bytelax.generate(model, [b"ab"], max_new_bytes=9, logprobs=True).results[0]
    right, wrong, half = score_continuations(
        model, [(b"ab", out.bytes), (b"ab", b"dc"), (b"ab", b"cdx")]
    )
    assert right.greedy and not wrong.greedy and not half.greedy
    assert right.log_prob == pytest.approx(out.log_probs.sum(), abs=1e-4)
    assert wrong.log_prob < right.log_prob
    assert list(score_continuations(model, [(b"ab", b"")])) == [(0.0, True)]


def test_too_long_a_continuation():
    with pytest.raises(ValueError, match="exceed the model's context of 1023"):
        score_continuations(models.model(models.BYTE_LM), [(b"x" * 1020, b"four")])
