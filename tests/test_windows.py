"""Texts of any length in windows: every byte once, in order, behind enough of what came before."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bytelax.scoring.windows import Windows, run_pieces, run_texts
from tests.helpers import models_for_tests as models

LENGTHS = st.integers(0, 250)
CUTS = st.integers(1, 100).flatmap(lambda w: st.tuples(st.just(w), st.integers(1, w)))


def echo(ids):
    """Tells of each byte which it is."""
    return (ids[:, 1:] - 4,)


def text_of(length):
    """No two stretches of it are alike."""
    return bytes(at * at % 251 for at in range(length))


@settings(max_examples=50)
@given(st.lists(LENGTHS, max_size=6), CUTS, st.integers(1, 5))
def test_every_byte_is_told_about_once(lengths, cut, batch):
    texts, progress = [text_of(length) for length in lengths], []
    found = run_texts(echo, texts, Windows(*cut), batch=batch, progress=progress.append)
    assert [bytes(found.tolist()) for (found,) in found] == texts
    assert sum(progress) == sum(map(len, texts))


@given(LENGTHS, CUTS)
def test_pieces(length, cut):
    text, (window, stride) = text_of(length), cut
    pieces = list(Windows(window, stride).cut(text))
    at = 0
    for piece in pieces:
        assert len(piece.text) <= window and len(piece.text) < piece.capacity
        begin = at - piece.begin
        assert text[begin : begin + len(piece.text)] == piece.text
        assert begin == 0 or piece.begin == window - stride
        at = begin + len(piece.text)
    assert at == len(text)
    assert [piece.last for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert len({piece.capacity for piece in pieces}) == 1


def test_few_texts_are_taken_ahead():
    """Also where the first one waits for others of its size, of which there are none."""
    taken = []

    def texts():
        for index in range(200):
            taken.append(index)
            yield b"x" * (100 if index else 1)

    found = run_texts(echo, texts(), Windows(200, 100), batch=2)
    assert [len(found) for (found,), _ in zip(found, range(3), strict=False)] == [1, 100, 100]
    assert len(taken) < 40
    assert len(list(found)) == 200 - 4  # `zip` took one more


def test_full_batches_of_one_capacity():
    """Rows are padded to powers of two, and only the last pass of each has empty ones."""
    seen = []

    def run(ids):
        seen.append(((ids[:, 0] == 1).sum(), *ids.shape))
        return echo(ids)

    texts = [b"x" * n for n in (63, 64, 127, 128, 1, 0, 90)]
    list(run_texts(run, texts, Windows(200, 200), batch=2))
    assert seen == [(2, 2, 128), (2, 2, 64), (1, 2, 201), (1, 2, 64), (1, 2, 128)]


@pytest.mark.parametrize(
    ("window", "stride", "says"),
    [
        (0, None, "window must be an integer in 1..1023"),
        (1024, None, "window must be an integer in 1..1023"),
        (10, 11, "stride must be an integer in 1..10"),
        (None, 0, "stride"),
        (None, 2000, "stride"),
        (-(2**70), None, "window"),
    ],
)
def test_windows_that_cannot_be(window, stride, says):
    with pytest.raises(ValueError, match=says):
        Windows.of(models.BYTE_LM.max_bytes, window, stride)


def test_defaults():
    assert Windows.of(4096, None, None) == Windows(1023, 512)
    assert Windows.of(77, None, None) == Windows(76, 38)
    assert Windows.of(2, None, None) == Windows(1, 1)
    assert Windows.of(4096, 9, None) == Windows(9, 5)


@pytest.mark.parametrize("batch", [0, -1, 2**70])
def test_batches_that_cannot_be(batch):
    with pytest.raises(ValueError, match="batch must be an integer"):
        run_pieces(echo, [], batch=batch)
