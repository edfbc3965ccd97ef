"""What a request may ask for: settings of each prompt, likeliest bytes, streams of many prompts."""

import functools

import jax
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from tests.helpers import models_for_tests as models

PROMPTS = [b"Ragged prompts: ", bytes(range(256))[::-1][:70], "naïve 日本".encode()]


@functools.cache
def byte_lm():
    return models.model(models.BYTE_LMS["window"])


def test_each_prompt_has_its_budget_and_its_stops():
    model = models.chain(b"abcdef")
    out = bytelax.generate(
        model, [b"f"] * 4, max_new_bytes=[3, 20, 20, 2], stop=[[b"e"], [b"de", "e"], (), ["cde"]]
    )
    assert out.bytes == [b"abc", b"abc", b"abcdef" * 3 + b"ab", b"ab"]
    assert [result.stop for result in out.results] == ["length", "stop", "length", "length"]


def test_likeliest_bytes_are_those_of_the_model():
    out = bytelax.generate(
        byte_lm(), PROMPTS, max_new_bytes=9, temperature=1.0, logprobs=3, allow_eos=False
    )
    for prompt, result in zip(PROMPTS, out.results, strict=True):
        found = result.likeliest
        assert found.ids.shape == found.log_probs.shape == (9, 3)
        ids = np.array([vocab.encode(prompt + result.bytes)])
        logits = byte_lm().logits(ids)[0, -10:-1]
        law = np.asarray(jax.nn.log_softmax(logits))
        order = np.argsort(-law, axis=-1, kind="stable")[:, :3]
        np.testing.assert_array_equal(found.ids, order)
        np.testing.assert_allclose(
            found.log_probs, np.take_along_axis(law, order, 1), rtol=0, atol=1e-5
        )
        own = np.where(found.ids == ids[0, -9:, None], found.log_probs, -np.inf).max(1)
        among = np.isfinite(own)
        assert among.any() and not among.all()
        np.testing.assert_array_equal(own[among], result.log_probs[among])
    plain = bytelax.generate(byte_lm(), PROMPTS[:1], max_new_bytes=1, logprobs=True)
    assert plain.results[0].likeliest is None


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_stream_of_many_prompts_is_their_texts(every):
    """Also of those that wait for a row, or for larger buffers; each with settings of its own."""
    text = "aé日x😀".encode()
    prompts = ["é", "日", "x" * 300, "😀", "日", "x", "a"]
    how = {
        "max_new_bytes": [17, 24, 11, 5, 30, 3, 9],
        "stop": [[], [b"x\xf0"], [], ["é"], [b"\x9f"], [], []],
    }
    model = models.chain(text)
    pieces: dict[int, list[str]] = {index: [] for index in range(len(prompts))}
    for index, piece in bytelax.stream(model, prompts, batch=3, every=every, **how):
        pieces[index].append(piece)
    whole = bytelax.generate(model, prompts, **how)
    assert ["".join(each) for each in pieces.values()] == whole.text
    flat = [piece for each in pieces.values() for piece in each[:-1]]
    assert all(flat) and not any("\ufffd" in piece for piece in flat)
    assert len(pieces[0]) > 1


def test_a_row_of_a_stream_that_breaks_is_told_when_the_others_have_ended():
    model = models.chain(b"abcdef")
    table = model.params["embed"]["embedding"].at[vocab.OFFSET + ord("d")].set(np.nan)
    broken = models.Model(model.module, model.params | {"embed": {"embedding": table}})
    pieces, how = [], {"max_new_bytes": [9, 2, 3], "every": 1, "batch": 2}
    with pytest.raises(ValueError, match="prompt 0: the model's logits after 2 bytes are NaN"):
        pieces.extend(bytelax.stream(broken, ["b", "e", "f"], **how))
    assert {index: "".join(p for i, p in pieces if i == index) for index in range(3)} == {
        0: "cd", 1: "fa", 2: "abc"
    }  # fmt: skip
