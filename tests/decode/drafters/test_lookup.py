"""Prompt lookup, against a search in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import bytelax
from bytelax import vocab
from bytelax.decode import DraftInput, Sampling, Text
from bytelax.systems import LookupDrafter
from tests.helpers import models_for_tests as models

BUFFER, ROWS = 24, 4
DRAFTER = LookupDrafter(draft_length=5, shortest=2, longest=4)


@jax.jit
def propose(text):
    inputs = DraftInput((), None, (), (), text, Sampling.of(ROWS), None)
    draft, _ = DRAFTER.propose(inputs, ())
    assert draft.log_probs is None  # nothing was drawn
    return draft.written_out(vocab.SIZE)


def reference(text):
    """The copied ids, by trying every length and every place."""
    for n in range(DRAFTER.longest, DRAFTER.shortest - 1, -1):
        for place in range(len(text) - 1, n - 1, -1):
            if text[place - n : place] == text[len(text) - n :]:
                copied = text[place:]
                while len(copied) < DRAFTER.draft_length:
                    copied = copied + text[place:]
                return copied[: DRAFTER.draft_length]
    return []


LETTERS = st.integers(vocab.OFFSET, vocab.OFFSET + 2)
TEXTS = st.lists(st.lists(LETTERS, min_size=1, max_size=BUFFER), min_size=ROWS, max_size=ROWS)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.lists(LETTERS, min_size=BUFFER, max_size=BUFFER))
@example([[4] * BUFFER, [4], [4, 5] * 5, [4, 4, 4]], [4] * BUFFER)
def test_any_texts(texts, garbage):
    ids = np.array([(text + garbage)[:BUFFER] for text in texts], np.int32)
    draft = propose(Text(jnp.asarray(ids), jnp.array([len(text) for text in texts])))
    for row, text in enumerate(texts):
        expected = reference(text)
        assert draft.length[row] == len(expected)
        assert np.asarray(draft.ids)[row, : len(expected)].tolist() == expected
        if expected:
            law = np.exp(np.asarray(draft.log_probs[row]))
            np.testing.assert_array_equal(law, np.eye(vocab.SIZE)[expected])


@pytest.mark.slow  # test_batches.py
def test_ends_inside_a_draft():
    model = models.chain("aé日x😀".encode())
    prompt = "aé日x😀" * 2
    request = {"method": "lookup", "draft_length": 7}
    for budget in (1, 5, 7, 8, 9, 30):
        out = bytelax.generate(model, [prompt], max_new_bytes=budget, **request)
        assert out.bytes == [(prompt * 3).encode()[:budget]]
        assert out.results[0].stats.rounds == -(-budget // 8)
    out = bytelax.generate(model, [prompt, "x😀a"], max_new_bytes=30, stop=["日x"], **request)
    assert out.text == ["aé", "é"]
    once = models.chain(b"abcdefgh", loop=False)
    out = bytelax.generate(once, [b"abcdefghabcd"], max_new_bytes=30, **request)
    assert (out.bytes, out.results[0].stop) == ([b"efgh"], "eos")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"draft_length": 0}, "draft_length"),
        ({"draft_length": 1024}, "draft_length"),
        ({"latent": "reuse"}, "takes no 'latent'"),
    ],
)
def test_bad_options(options, words):
    with pytest.raises(ValueError, match=words):
        bytelax.generate(models.chain(b"ab"), [b"a"], method="lookup", **options)


@pytest.mark.parametrize(
    ("shortest", "longest", "words"),
    [(0, 4, "a match has 1..256 bytes"), (4, 2**31, "1..256 bytes"), (5, 4, "must not exceed")],
)
def test_matches_of_no_length(shortest, longest, words):
    with pytest.raises(ValueError, match=words):
        LookupDrafter(3, shortest, longest)
