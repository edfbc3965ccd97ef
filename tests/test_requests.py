"""What a request may ask for: settings of each prompt, streams of many prompts."""

import functools
import io
import sys

import numpy as np
import pytest

import bytelax
from bytelax import cli
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

NEW = 24


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


@pytest.mark.slow  # of few prompts: below, and test_generation.py
@pytest.mark.parametrize("every", [3, 1])
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
    broken = models.broken_after("d", models.chain(b"abcdef"))
    pieces, how = [], {"max_new_bytes": [9, 2, 3], "every": 1, "batch": 2}
    with pytest.raises(ValueError, match="prompt 0: the model's logits after 2 bytes are NaN"):
        pieces.extend(bytelax.stream(broken, ["b", "e", "f"], **how))
    assert {index: "".join(p for i, p in pieces if i == index) for index in range(3)} == {
        0: "cd", 1: "fa", 2: "abc"
    }  # fmt: skip


# Turns and samples


SMALL = models.replace(models.VARIANTS["own_embedding"], block_size=6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "method"),
    [
        (byte_lm, {"method": "lookup", "draft_length": 3}),
        (lambda: models.model(SMALL), {"method": "blt-dv", "block_size": 6}),
    ],
)
@pytest.mark.parametrize("law", [{"allow_eos": False}, {"temperature": 1.0, "stop": ["e", "t"]}])
def test_turns_are_what_generate_writes_after_the_text_so_far(model, method, law):
    """Also when the text outgrows its buffers, and after a turn without text."""
    texts = [b"Ragged turns: ", "日本".encode(), b"", b"and " * 60, b"?", b"!"]
    how = {"max_new_bytes": 24, "logprobs": True} | method | law
    text, sizes = b"", set()
    turns = bytelax.turns(model(), iter(texts), seeds=3, **how)
    for index, (more, result) in enumerate(zip(texts, turns, strict=True)):
        text += more
        (alone,) = bytelax.generate(model(), [text], seeds=3, **how).results
        assert (result.index, result.bytes, result.stop) == (index, alone.bytes, alone.stop)
        np.testing.assert_allclose(result.log_probs, alone.log_probs, rtol=0, atol=1e-5)
        assert result.stats.bytes == alone.stats.bytes
        if result.stop == "stop":  # whose last byte was cut off
            free = how | {"stop": [], "max_new_bytes": len(alone.bytes) + 1}
            (alone,) = bytelax.generate(model(), [text], seeds=3, **free).results
        text += alone.bytes
        sizes.add(len(text) > 232)
    assert sizes == {True, False}


def test_turns_of_a_chain():
    model = models.chain(b"abcdef", loop=False)
    results = bytelax.turns(model, ["a", "xc", "b", "a"], stop=["d"], max_new_bytes=4)
    assert [(each.bytes, each.stop) for each in results] == [
        (b"bc", "stop"), (b"", "stop"), (b"c", "stop"), (b"bc", "stop")
    ]  # fmt: skip
    results = bytelax.turns(model, ["e", "xd", "b"], stop=["z"], max_new_bytes=3)
    assert [(each.bytes, each.stop) for each in results] == [
        (b"f", "eos"), (b"ef", "eos"), (b"cde", "length")
    ]  # fmt: skip


SHORT = [b"Ragged prompts: ", "naïve 日本".encode()]
WITH_LONG = [SHORT[0], b"x" * 300, SHORT[1]]


@pytest.mark.parametrize(
    ("model", "method", "prompts"),
    [
        (byte_lm, {"method": "lookup", "draft_length": 3}, SHORT),
        slow(byte_lm, {"method": "lookup", "draft_length": 3}, WITH_LONG),
        slow(lambda: models.model(SMALL), {"method": "blt-s"}, SHORT),
        exhaustive(lambda: models.model(SMALL), {"method": "blt-s"}, WITH_LONG),
    ],
)
def test_samples_are_what_the_prompt_given_as_often_is_continued_with(model, method, prompts):
    how = {"temperature": 1.0, "max_new_bytes": NEW, "logprobs": True, "allow_eos": False}
    several = bytelax.generate(model(), prompts, samples=4, seeds=5, **how, **method)
    each = [prompt for prompt in prompts for _ in range(4)]
    alone = bytelax.generate(model(), each, seeds=5, **how, **method)
    assert several.bytes == alone.bytes and len({*several.bytes}) == len(each)
    assert [result.index for result in several.results] == [i // 4 for i in range(len(each))]
    for one, other in zip(several.results, alone.results, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=0, atol=1e-5)


def test_turns_on_the_command_line(tmp_path, monkeypatch, capfdbinary):
    chain = models.saved(models.chain(b"abcdef"), tmp_path / "chain")
    command = ["generate", "--model", chain, "--turns", "--max-new-bytes", "3"]
    command += ["--stop", "\udcff"]  # bytes that are no UTF-8
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"b\nxe\r\nd")))
    assert cli.main([*command, "a"]) == 0
    assert capfdbinary.readouterr().out == b"cde\nfab\nefa\n"
