"""Scores of continuations: those of `logits` and of `generate`, whatever they are padded to."""

import jax
import numpy as np
import pytest

from bytelax import generate, vocab
from bytelax.scoring import score_continuations
from tests.helpers import models_for_tests as models


@pytest.mark.parametrize(
    "config",
    [models.BYTE_LM, pytest.param(models.BASE, marks=pytest.mark.slow)],
    ids=["byte transformer", "blt"],
)
def test_sums_of_log_probabilities(config):
    model = models.model(config)
    pairs = [(b"", b"one"), (b"a context ", b"and more"), (b"x" * 60, b"longer than the rest")]
    found = score_continuations(model, pairs, batch=2)
    for (context, continuation), scored in zip(pairs, found, strict=True):
        text = vocab.encode(context + continuation)
        ids = np.array([text + [vocab.OFFSET] * (96 - len(text))])  # what follows does not matter
        logits = np.array(model.logits(ids)[0], np.float64)
        logits[:, [vocab.BOE, vocab.BOS, vocab.MASK]] = -np.inf
        law = np.asarray(jax.nn.log_softmax(logits))[: len(text) - 1]
        own = range(len(law) - len(continuation), len(law))
        expected = sum(law[at, ids[0, at + 1]] for at in own)
        assert scored.log_prob == pytest.approx(expected, abs=1e-3)
        assert not scored.greedy


def test_what_greedy_decoding_writes_is_greedy():
    model = models.chain(b"abcdefgh")
    out = generate(model, [b"ab"], max_new_bytes=9, logprobs=True).results[0]
    right, wrong, half = score_continuations(
        model, [(b"ab", out.bytes), (b"ab", b"dc"), (b"ab", b"cdx")]
    )
    assert right.greedy and not wrong.greedy and not half.greedy
    assert right.log_prob == pytest.approx(out.log_probs.sum(), abs=1e-4)
    assert wrong.log_prob < right.log_prob
    assert list(score_continuations(model, [(b"ab", b"")])) == [(0.0, True)]


def test_too_long_a_text():
    with pytest.raises(ValueError, match="exceed the model's context of 1023"):
        score_continuations(models.model(models.BYTE_LM), [(b"x" * 1020, b"four")])
