"""A draft model keeps step with the text, and changes nothing but the speed."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.decode import Method, Params, Sampling, Stops, Text, rejection
from bytelax.systems import DraftModelDrafter
from tests.helpers import decoding as loops
from tests.helpers import models_for_tests as models

WIDTH = 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [models.BYTE_LMS["documents"], pytest.param(models.BASE, marks=pytest.mark.exhaustive)],
)
def test_a_draft_model_that_is_the_target_is_always_right(config):
    """All that was drafted and fits the budget is emitted: its state is never behind or ahead."""
    model = models.model(config)
    drafter = DraftModelDrafter(model.target(), WIDTH)
    decoding = loops.run(model, drafter, model.params)
    rounds = -(-loops.BUDGETS // (WIDTH + 1))
    np.testing.assert_array_equal(decoding.counts.rounds, rounds)
    np.testing.assert_array_equal(decoding.counts.draft_passes.draft_model, rounds * WIDTH)
    assert not any(
        np.asarray(made).any()
        for name, made in decoding.counts.draft_passes._asdict().items()
        if name != "draft_model"
    )
    loops.assert_same(decoding, loops.reference(config, "float32", WIDTH))


# Chance: a round at a time, many rows at once


ROWS, NEW = 2048, 2
PROMPT = vocab.encode(b"dice")


def law_of_texts(model, law):
    """{ids: probability} of the next NEW ids, from whole texts."""
    laws = {(): 1.0}
    for _ in range(NEW):
        texts = list(laws)
        ids = np.array([[*PROMPT, *text] for text in texts], np.int32)
        logits = np.asarray(model.logits(ids))[:, -1:]
        one = dataclasses.replace(
            law,
            **{
                name: getattr(law, name)[: len(texts)] for name in ("temperature", "top_k", "top_p")
            },
        )
        probs = np.exp(np.asarray(bytelax.decode.process_logits(jnp.asarray(logits), one)))[:, 0]
        laws = {
            (*text, int(x)): laws[text] * probs[row, x]
            for row, text in enumerate(texts)
            for x in np.flatnonzero(probs[row])
        }
    return laws


def frequencies(model, small, accept):
    ids = np.full((ROWS, 16), 77, np.int32)
    ids[:, : len(PROMPT)] = PROMPT
    law = Sampling.of(ROWS, temperature=0.3, top_k=12)
    decoding = loops.decode(
        Params(model.params, small.params),
        Text(jnp.asarray(ids), jnp.full(ROWS, len(PROMPT))),
        jnp.full(ROWS, NEW),
        jnp.arange(ROWS, dtype=jnp.uint32),
        law,
        Stops.of([]),
        method=Method(model.target(), DraftModelDrafter(small.target(), 2), accept),
    )
    begin = len(PROMPT)
    found = np.asarray(decoding.text.ids)[:, begin : begin + NEW]
    counts = decoding.counts
    assert 0.05 < counts.accepted.sum() / counts.drafted.sum() < 0.95
    return found, law_of_texts(model, law)


def worst(found, laws):
    """How many standard deviations the most surprising frequency is off."""
    assert set(map(tuple, found.tolist())) <= set(laws)
    count = dict.fromkeys(laws, 0)
    for text in map(tuple, found.tolist()):
        count[text] += 1
    return max(
        abs(count[text] - ROWS * p) / np.sqrt(ROWS * p * (1 - p))
        for text, p in laws.items()
        if ROWS * p > 10
    )


@pytest.mark.exhaustive
@pytest.mark.slow  # test_lookup.py; enumerated: ../test_exact_law.py
def test_sampled_output_has_the_law_of_the_target():
    config = models.BYTE_LMS["plain"]
    model = models.model(config)
    rng = np.random.default_rng(0)
    small = dataclasses.replace(
        model,
        params=jax.tree.map(
            lambda x: x + 0.03 * rng.standard_normal(x.shape, np.float32), model.params
        ),
    )
    found, laws = frequencies(model, small, rejection)
    assert abs(sum(laws.values()) - 1) < 1e-5
    assert worst(found, laws) < 4.5
    found, laws = frequencies(model, small, wrong_law)
    assert worst(found, laws) > 8


def wrong_law(draft, log_probs, uniforms):
    """As if temperature had not sharpened the laws that the draft was drawn from."""
    flat = jax.nn.log_softmax(draft.log_probs / 4)
    return rejection(dataclasses.replace(draft, log_probs=flat), log_probs, uniforms)


# Through `generate`


@pytest.mark.exhaustive
@pytest.mark.slow  # test_batches.py
def test_ends_inside_a_draft():
    """The draft goes on behind EOS, stop strings and budgets; the output does not."""
    model = models.chain(b"abcdef", loop=False)
    request = {"method": "draft-model", "draft_model": model, "draft_length": 5}
    out = bytelax.generate(model, [b"b", b"e", b"f"], max_new_bytes=20, **request)
    assert out.bytes == [b"cdef", b"f", b""]
    assert [result.stop for result in out.results] == ["eos"] * 3
    assert [result.stats.rounds for result in out.results] == [1, 1, 1]
    out = bytelax.generate(model, [b"a", b"b"], max_new_bytes=20, stop=[b"de"], **request)
    assert out.bytes == [b"bc", b"c"]
    for budget in range(1, 5):
        out = bytelax.generate(model, [b"a"], max_new_bytes=budget, **request)
        assert out.bytes == [b"bcdef"[:budget]] and out.results[0].stop == "length"


@pytest.mark.slow
def test_refilled_rows_and_streams():
    model = models.chain("aé日x😀".encode())
    request = {
        "method": "draft-model",
        "draft_model": model,
        "draft_length": 3,
        "max_new_bytes": 11,
    }
    prompts = ["a", "日", "x", "aé", "😀"]
    plain = bytelax.generate(model, prompts, max_new_bytes=11)
    many = sorted(bytelax.generate_many(model, prompts, batch=2, **request), key=lambda r: r.index)
    assert [result.bytes for result in many] == plain.bytes
    assert [result.stats.rounds for result in many] == [3] * 5
    assert "".join(bytelax.stream(model, "a", every=1, **request)) == plain.text[0]


def test_statistics_count_the_draft_model():
    model, small = models.chain(b"abcdef"), models.chain(b"abcdefgh")
    request = {"method": "draft-model", "max_new_bytes": 12, "draft_length": 3}
    row = bytelax.generate(model, [b"a"], draft_model=small, **request).results[0].stats.to_dict()
    plain = bytelax.generate(model, [b"a"], max_new_bytes=12).results[0].stats.to_dict()
    assert row["draft_model_passes"] == 3 * row["rounds"]
    assert row["decoder_passes"] == row["rounds"] < 12

    def weights(model):
        leaves = jax.tree_util.tree_leaves_with_path(model.params)
        return sum(x.size for path, x in leaves if "embedding" not in str(path))

    read = row["rounds"] * (weights(model) + 3 * weights(small))
    assert row["bandwidth_gb"] == pytest.approx(2 * read / 1e9)
    assert plain["draft_model_passes"] == 0


def test_bad_options():
    model = models.chain(b"ab")
    for options, words in (
        ({}, "needs draft_model"),
        ({"draft_model": "nowhere at all"}, "nowhere at all"),
        ({"draft_model": model, "draft_length": 0}, "draft_length"),
        ({"draft_model": model, "beam": 3}, "takes no 'beam'"),
    ):
        with pytest.raises(ValueError, match=words):
            bytelax.generate(model, [b"a"], method="draft-model", **options)
