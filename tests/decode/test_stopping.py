"""When rows end, against a search in plain Python."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.decode import Stops, Text, stopping

BUFFER = 40
WIDTH = 5
trim = jax.jit(stopping.trim)


def reference(output, stops, budget):
    """How many ids of the output stand, and why it ends: id by id."""
    for end in range(1, len(output) + 1):
        if output[end - 1] == vocab.EOS:
            return end, "eos"
        # EOS aside an output is bytes.
        written = vocab.decode(output[:end])
        if any(written.endswith(stop) for stop in stops):
            return end, "stop"
        if end >= budget:
            return end, "length"
    return len(output), "running"


def in_windows(prompt, output, counts, stops, budget):
    """The same as the loop does it: `counts` ids at a time, until the row ends."""
    ids = np.full((1, BUFFER), vocab.OFFSET, np.int32)
    ids[0, : len(prompt)] = prompt
    length, taken = len(prompt), 0
    law = {"prompt": jnp.array([len(prompt)]), "limit": jnp.array([len(prompt) + budget])}
    packed = packed_stops(stops)
    for count in counts:
        count = min(count, len(output) - taken)
        emitted = np.full((1, WIDTH), vocab.EOS, np.int32)  # what is not there would end the row
        emitted[0, :count] = output[taken : taken + count]
        kept, reason = trim(
            Text(jnp.asarray(ids), jnp.array([length])),
            jnp.asarray(emitted),
            jnp.array([count]),
            stops=packed,
            **law,
        )
        kept = int(kept[0])
        ids[0, length : length + kept] = output[taken : taken + kept]
        length, taken = length + kept, taken + kept
        if reason[0] != stopping.RUNNING:
            return taken, stopping.REASONS[int(reason[0])]
        assert kept == count
    return taken, "running"


@functools.cache
def packed_stops(stops):
    """Always 4 strings of up to 4 bytes, so that one program serves: unused ones are doubled."""
    few = Stops.of(stops + (b"\xff\xff\xff\xff",) * (4 - len(stops)))
    assert few.ids.shape == (1, 4, 4)
    return few


LETTERS = st.sampled_from([vocab.OFFSET + ord(letter) for letter in "ab"])
OUTPUTS = st.lists(st.one_of(LETTERS, LETTERS, LETTERS, st.just(vocab.EOS)), max_size=16)
STOPS = st.lists(
    st.binary(min_size=1, max_size=4).map(lambda b: bytes(b"ab"[x % 2] for x in b)), max_size=3
).map(tuple)


@settings(max_examples=50)
@given(
    st.lists(LETTERS, max_size=6),
    OUTPUTS,
    st.lists(st.integers(0, WIDTH), min_size=20, max_size=20),
    STOPS,
    st.integers(1, 20),
)
@example([], vocab.encode(b"aab", bos=False), [1] * 20, (b"aab", b"ab"), 20)
@example(vocab.encode(b"a", bos=False), vocab.encode(b"ba", bos=False), [2] * 20, (b"ab",), 20)
def test_any_windows(prompt, output, counts, stops, budget):
    prompt = [vocab.BOS, *prompt]
    expected = reference(output[: sum(counts)], stops, budget)
    assert in_windows(prompt, output, counts, stops, budget) == expected


def bytes_of(text):
    return vocab.encode(text, bos=False)


@pytest.mark.parametrize(
    ("output", "counts", "stops", "expected"),
    [
        (b"xxabcyy", [3, 4], (b"abc",), (5, "stop")),  # across two windows
        (b"xxabcyy", [1] * 7, (b"abc",), (5, "stop")),  # a byte at a time
        (b"xabyabz", [5, 2], (b"ab",), (3, "stop")),  # inside one; the first of two
        (b"xabcdz", [5, 1], (b"abcd", b"bc"), (4, "stop")),  # the earliest end
        (b"xabcd", [5], (b"abcd", b"cd"), (5, "stop")),
        (b"aaaa", [4], (b"aa",), (2, "stop")),
        (b"abab", [2, 2], (b"ba",), (3, "stop")),
        (b"abc", [3], (b"abcd",), (3, "running")),
        (b"\x00\xff\xfe", [3], (b"\xff\xfe",), (3, "stop")),  # not UTF-8
    ],
)
def test_stop_strings(output, counts, stops, expected):
    assert in_windows([vocab.BOS], bytes_of(output), counts, stops, 30) == expected


def test_a_stop_string_in_or_across_the_prompt_does_not_count():
    prompt = [vocab.BOS, *bytes_of(b"abab")]
    assert in_windows(prompt, bytes_of(b"c"), [1], (b"ab",), 30) == (1, "running")
    assert in_windows(prompt, bytes_of(b"c"), [1], (b"bc",), 30) == (1, "running")
    assert in_windows(prompt, bytes_of(b"cbc"), [3], (b"bc",), 30) == (3, "stop")


def test_what_ends_a_row_first():
    output = [*bytes_of(b"ab"), vocab.EOS, *bytes_of(b"c")]
    assert in_windows([1], output, [4], (), 30) == (3, "eos")
    assert in_windows([1], output, [4], (b"ab",), 30) == (2, "stop")
    assert in_windows([1], output, [4], (b"ab",), 1) == (1, "length")
    assert in_windows([1], output, [4], (b"ab",), 2) == (2, "stop")  # both at one byte
    assert in_windows([1], output, [4], (), 3) == (3, "eos")


def test_rows_are_apart_and_ended_rows_stand_still():
    ids = np.full((3, BUFFER), vocab.OFFSET, np.int32)
    emitted = np.array([bytes_of(b"abcde"), bytes_of(b"xabxx"), bytes_of(b"ababa")], np.int32)
    kept, reason = trim(
        Text(jnp.asarray(ids), jnp.array([1, 7, 3])),
        jnp.asarray(emitted),
        jnp.array([5, 5, 0]),
        prompt=jnp.array([1, 2, 3]),
        limit=jnp.array([4, 30, 30]),
        stops=packed_stops((b"ab", b"zz")),
    )
    np.testing.assert_array_equal(kept, [2, 3, 0])
    assert [stopping.REASONS[r] for r in np.asarray(reason)] == ["stop", "stop", "running"]


def test_no_stop_strings():
    text = Text(jnp.full((1, BUFFER), vocab.OFFSET), jnp.array([1]))
    kept, reason = trim(
        text,
        jnp.asarray([bytes_of(b"abcde")]),
        jnp.array([5]),
        prompt=jnp.array([1]),
        limit=jnp.array([30]),
        stops=Stops.of([]),
    )
    assert (int(kept[0]), int(reason[0])) == (5, stopping.RUNNING)


def test_shapes_are_shared():
    assert Stops.of([b"abc"]).ids.shape == Stops.of([b"wxyz"]).ids.shape
    assert Stops.of([b"a", b"bc", b"d"]).ids.shape == Stops.of([b"ab"] * 4).ids.shape


@pytest.mark.parametrize(
    ("strings", "rows"),
    [
        ([np.array([5, 6]), b"\2"], [[(5, 6), (6,)]]),
        (np.array([[5, 6], [7, 8]]), [[(5, 6), (7, 8)]]),
        ([[np.array([5])], [], [bytearray(b"\1\2")]], [[(5,)], [], [(5, 6)]]),
        ([()], [[]]),
    ],
)
def test_kinds_of_stop_strings(strings, rows):
    made = Stops.of(strings)
    assert [
        [
            tuple(ids[len(ids) - length :].tolist())
            for ids, length in zip(*row, strict=True)
            if length
        ]
        for row in zip(made.ids, made.length, strict=True)
    ] == rows


def test_prompts_of_any_kind_of_bytes():
    one, other = Text.of([b"ab"], length=4), Text.of([bytearray(b"ab")], length=4)
    assert (
        one.ids.tolist() == other.ids.tolist() == [[vocab.BOS, *vocab.encode(b"ab", bos=False), 0]]
    )


def test_text_is_a_stop_string():
    for text, encoded in ((["é", "b"], ["é".encode(), b"b"]), ([["é"], []], [["é".encode()], []])):
        made, expected = Stops.of(text), Stops.of(encoded)
        assert made.ids.tolist() == expected.ids.tolist()
        assert made.length.tolist() == expected.length.tolist()


@pytest.mark.parametrize("strings", [[3], [b"ab", [b"c"]], [[b"ab"], [["c"]]], [[1.5]]])
def test_what_is_no_stop_string(strings):
    with pytest.raises(ValueError, match="a stop string is bytes, text or ids"):
        Stops.of(strings)


@pytest.mark.parametrize("string", ["ab", b"ab"])
def test_one_string_is_not_a_list_of_stop_strings(string):
    with pytest.raises(ValueError, match="must be a list of strings"):
        Stops.of(string)


@pytest.mark.parametrize("strings", [[(), (1, 2)], [(1, 2), ()], [[b"a"], [b""]], [b""]])
def test_an_empty_string_among_stop_strings(strings):
    with pytest.raises(ValueError, match="empty"):
        Stops.of(strings)


def test_an_empty_stop_string():
    with pytest.raises(ValueError, match="empty"):
        Stops.of([b"a", b""])


def test_a_long_stop_string_is_no_longer_program():
    """One of 5,000 bytes took minutes to compile."""

    def program(stop):
        text = Text(jnp.full((1, BUFFER), vocab.OFFSET), jnp.array([1]))
        emitted, one = jnp.asarray([bytes_of(b"abcde")]), jnp.array([5])
        law = {"prompt": one, "limit": one, "stops": Stops.of([stop])}
        return len(jax.make_jaxpr(stopping.trim)(text, emitted, one, **law).eqns)

    assert program(b"a" * 5000) == program(b"abc")
