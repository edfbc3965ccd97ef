"""Prompt lookup, against a search in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.decode import DraftInput, Sampling, Text
from bytelax.systems import LookupDrafter

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


@settings(max_examples=100)
@given(TEXTS, st.lists(LETTERS, min_size=BUFFER, max_size=BUFFER))
@example([[4] * BUFFER, [4], [4, 5] * 5, [4, 4, 4]], [4] * BUFFER)
def test_any_texts(texts, garbage):
    ids = np.array([(text + garbage)[:BUFFER] for text in texts], np.int32)
    length = np.array([len(text) for text in texts], np.int32)
    draft = jax.device_get(propose(Text(jnp.asarray(ids), jnp.asarray(length))))
    for row, text in enumerate(texts):
        expected = reference(text)
        assert draft.length[row] == len(expected)
        assert draft.ids[row, : len(expected)].tolist() == expected
        if expected:
            law = np.exp(draft.log_probs[row])
            np.testing.assert_array_equal(law, np.eye(vocab.SIZE)[expected])
