"""The model for lm-evaluation-harness, driven by requests like the harness's."""

import types

import jax
import jax.numpy as jnp
import pytest

from bytelax import generate, generate_many
from bytelax.measure import harness
from bytelax.measure.harness import HarnessModel
from bytelax.model import Model
from bytelax.scoring import score_continuations
from tests.helpers import models_for_tests as models


def request(*args):
    return types.SimpleNamespace(args=args)


def generated(driven, *asked):
    return driven.generate_until([request(*each) for each in asked])


def test_likelihoods():
    model = models.model(models.BYTE_LM)
    driven = HarnessModel(model, batch=2)
    pairs = [("Grüße, ", "one"), ("", "another"), ("x", "y")]
    expected = score_continuations(model, [(a.encode(), b.encode()) for a, b in pairs])
    found = driven.loglikelihood([request(*pair) for pair in pairs])
    assert [type(each) for each in found] == [tuple] * 3
    assert found == [pytest.approx(tuple(each), abs=1e-3) for each in expected]
    (cut,) = driven.loglikelihood([request("z" * 2000, "end")])
    (kept,) = score_continuations(model, [(b"z" * 1020, b"end")])
    assert cut[0] == pytest.approx(kept.log_prob, abs=1e-3)


def test_every_byte_of_a_long_text_once():
    """In windows of the model's context, half of each of which is what came before."""
    model = models.model(models.replace(models.BYTE_LM, max_bytes=65))
    text = "".join(chr(33 + i * i % 90) for i in range(170))
    pairs = [(text[:0], text[:64])]
    pairs += [(text[i - 32 : i], text[i : i + 32]) for i in range(64, 170, 32)]
    driven = HarnessModel(model)
    parts = driven.loglikelihood([request(*pair) for pair in pairs])
    (found,) = driven.loglikelihood_rolling([request(text)])
    assert found == pytest.approx(sum(log_prob for log_prob, _ in parts), abs=1e-4)


def test_writing():
    driven = HarnessModel(models.chain(b"abcdefgh"), method="lookup", draft_length=3)
    asked = [("ab", {"until": ["gh", ""]}), ("ab", {"until": "x", "max_gen_toks": 4})]
    assert generated(driven, *asked) == ["cdef", "cdef"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "method", "options"),
    [
        (models.BYTE_LM, "early-exit", {"exit_layer": 1, "draft_length": 2}),
        (models.BASE, "blt-s", {"draft_length": 4}),
    ],
)
def test_drafted_answers_are_those_of_plain_decoding_in_the_order_of_the_requests(
    config, method, options
):
    """In batches smaller than the requests, of prompts and answers of several lengths."""
    model = models.model(config)
    prompts = ["b", "a longer prompt", "ccc", "the longest prompt of them", "dd"]
    driven = HarnessModel(model, batch=2, method=method, **options)
    found = generated(
        driven, *((prompt, {"max_gen_toks": 9 if prompt == "ccc" else 5}) for prompt in prompts)
    )
    plain = [
        generate(model, [prompt], max_new_bytes=9 if prompt == "ccc" else 5).text[0]
        for prompt in prompts
    ]
    assert found == plain and len(set(plain)) == len(plain)
    assert len(driven.stats) == len(prompts) and sum(each.drafted for each in driven.stats)


def test_requests_are_sampled_apart_from_one_another():
    """The harness asks for several samples by repeating a request."""
    model = models.model(models.SMALLEST)
    sampled = 6 * [("a", {"do_sample": True, "max_gen_toks": 8})]
    found = generated(HarnessModel(model), *sampled)
    assert len(set(found)) == len(found)
    assert generated(HarnessModel(model), *sampled) == found
    assert generated(HarnessModel(model, seed=1), *sampled)[:5] == found[1:]


def test_what_a_task_may_ask_for():
    of = harness._Settings.of
    plain = of({"until": "\n", "do_sample": False, "temperature": 0.7, "num_beams": 1}, 64)
    assert plain == (64, ("\n",), 0.0, 0, 1.0)
    assert of({"until": None, "temperature": 0.0, "max_gen_toks": 3}, 64) == (3, (), 0.0, 0, 1.0)
    # A temperature alone asks for sampling, and sampling alone for the model's own law.
    assert of({"temperature": 0.7, "top_p": 0.9, "top_k": 5}, 64).temperature == 0.7
    assert of({"do_sample": True, "max_new_tokens": 5}, 64)[:3] == (5, (), 1.0)
    with pytest.raises(ValueError, match=r"without num_beams, penalty: leave it out"):
        of({"num_beams": 4, "penalty": 2, "until": []}, 64)


def test_bad_input_is_told_before_anything_is_scored():
    model = models.model(models.BYTE_LM)
    for options, says in [
        ({"method": "blt-x"}, "blt-x"),
        ({"method": "blt-s"}, "blt-s"),
        ({"batch": 0}, "batch must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=says):
            HarnessModel(model, **options)
    with pytest.raises(ValueError, match="context"):
        generated(HarnessModel(model), ("a", {"max_gen_toks": 5000}))


def test_weights_that_are_no_numbers_are_told():
    """They would be answers: the first choice of every question, and empty texts."""
    model = models.chain(b"abcdefgh")
    broken = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), model.params)
    driven = HarnessModel(Model(model.module, broken), batch=1)
    for asked, run in [
        (("a", "b"), driven.loglikelihood),
        (("a",), driven.loglikelihood_rolling),
        (("a", {"max_gen_toks": 2}), driven.generate_until),
    ]:
        with pytest.raises(ValueError, match="NaN or infinite"):
            run([request(*asked)])


def test_options_prevail_over_the_task():
    model = models.chain(b"abcdefgh")
    driven = HarnessModel(model, batch=1, stop=["e"], temperature=0.0)
    assert generated(driven, ("ab", {"until": ["d"], "do_sample": True})) == ["cd"]


def test_every_answer_is_cached_as_soon_as_it_is_there(monkeypatch):
    cached = []
    monkeypatch.setattr(harness, "LM", HarnessModel)  # as if the harness were installed
    driven = HarnessModel(models.chain(b"abcdefgh"), batch=1)
    driven.cache_hook = types.SimpleNamespace(add_partial=lambda *row: cached.append(row))
    pairs = [("a", "b"), ("c", "x")]
    scored = driven.loglikelihood([request(*pair) for pair in pairs])
    whole = driven.loglikelihood_rolling([request("abc")])
    asked = [("a", {"max_gen_toks": 2}), ("abc", {"max_gen_toks": 2})]
    written = generated(driven, *asked)
    answers = [
        *(("loglikelihood", pair, each) for pair, each in zip(pairs, scored, strict=True)),
        ("loglikelihood_rolling", ("abc",), whole[0]),
        *(("generate_until", each, text) for each, text in zip(asked, written, strict=True)),
    ]
    assert sorted(cached, key=str) == sorted(answers, key=str)

    def interrupted(*args, **how):
        yield next(generate_many(*args, **how))
        raise KeyboardInterrupt

    monkeypatch.setattr(harness, "generate_many", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generated(driven, *asked)
    assert len(cached) == len(answers) + 1
