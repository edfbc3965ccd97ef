"""The model for lm-evaluation-harness, driven by requests like the harness's."""

import types

import models_for_tests as models
import pytest

from bytelax.measure import harness, likelihood


class Request:
    def __init__(self, *args):
        self.args = args


def test_likelihoods():
    model = models.model(models.BYTE_LM)
    driven = harness.HarnessModel(model, batch=2)
    pairs = [("Grüße, ", "one"), ("", "another"), ("x", "y")]
    expected = likelihood.continuations(model, [(a.encode(), b.encode()) for a, b in pairs])
    found = driven.loglikelihood([Request(*pair) for pair in pairs])
    assert [type(each) for each in found] == [tuple] * 3
    assert found == [pytest.approx(tuple(each), abs=1e-3) for each in expected]
    (cut,) = driven.loglikelihood([Request("z" * 2000, "end")])
    (kept,) = likelihood.continuations(model, [(b"z" * 1020, b"end")])
    assert cut[0] == pytest.approx(kept.log_prob, abs=1e-3)


def test_every_byte_of_a_long_text_once(monkeypatch):
    text = "".join(chr(33 + i * i % 90) for i in range(1700))
    asked = []

    def scored(model, pairs, *, batch):
        asked.extend(pairs)
        return [likelihood.Scored(-len(new), False) for _, new in pairs]

    monkeypatch.setattr(harness, "likelihood", types.SimpleNamespace(continuations=scored))
    driven = harness.HarnessModel(models.model(models.BYTE_LM))
    assert driven.loglikelihood_rolling([Request(text)]) == [-1700]
    assert b"".join(new for _, new in asked).decode() == text
    for context, new in asked:
        at = text.encode().index(context + new)
        assert len(context + new) <= 1023 and (at == 0 or len(context) == 512)


def test_writing():
    driven = harness.HarnessModel(models.chain(b"abcdefgh"), method="lookup", draft_length=3)
    asked = [("ab", {"until": ["gh", ""]}), ("ab", {"until": "x", "max_gen_toks": 4})]
    assert driven.generate_until([Request(*each) for each in asked]) == ["cdef", "cdef"]
