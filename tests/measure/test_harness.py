"""The model for lm-evaluation-harness, driven by requests like the harness's."""

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


def test_every_byte_of_a_long_text_once():
    """In windows of the model's context, half of each of which is what came before."""
    model = models.model(models.replace(models.BYTE_LM, max_bytes=65))
    text = "".join(chr(33 + i * i % 90) for i in range(170))
    pairs = [(text[:0], text[:64])]
    pairs += [(text[i - 32 : i], text[i : i + 32]) for i in range(64, 170, 32)]
    driven = harness.HarnessModel(model)
    parts = driven.loglikelihood([Request(*pair) for pair in pairs])
    (found,) = driven.loglikelihood_rolling([Request(text)])
    assert found == pytest.approx(sum(log_prob for log_prob, _ in parts), abs=1e-4)


def test_writing():
    driven = harness.HarnessModel(models.chain(b"abcdefgh"), method="lookup", draft_length=3)
    asked = [("ab", {"until": ["gh", ""]}), ("ab", {"until": "x", "max_gen_toks": 4})]
    assert driven.generate_until([Request(*each) for each in asked]) == ["cdef", "cdef"]
