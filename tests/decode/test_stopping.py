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


def bytes_of(text):
    return vocab.encode(text, bos=False)


WITH_EOS = [*bytes_of(b"ab"), vocab.EOS, *bytes_of(b"c")]


@settings(max_examples=50)
@given(
    st.lists(LETTERS, max_size=6),
    OUTPUTS,
    st.lists(st.integers(0, WIDTH), min_size=20, max_size=20),
    STOPS,
    st.integers(1, 20),
)
@example([], bytes_of(b"aab"), [1] * 20, (b"aab", b"ab"), 20)
@example([], bytes_of(b"xxabcyy"), [3, 4], (b"abc",), 20)  # in two windows
@example([], bytes_of(b"xabyabz"), [5, 2], (b"ab",), 20)  # inside one; the first of two
@example([], bytes_of(b"xabcdz"), [5, 1], (b"abcd", b"bc"), 20)  # the earliest end
@example([], bytes_of(b"abc"), [3], (b"abcd",), 20)  # a part of one
@example([], bytes_of(b"\x00\xff\xfe"), [3], (b"\xff\xfe",), 20)  # not UTF-8
@example(bytes_of(b"abab"), bytes_of(b"c"), [1], (b"ab",), 20)  # in the prompt: does not count
@example(bytes_of(b"abab"), bytes_of(b"cbc"), [3], (b"bc",), 20)  # begins in the prompt
@example([], WITH_EOS, [4], (), 20)
@example([], WITH_EOS, [4], (b"ab",), 1)
@example([], WITH_EOS, [4], (b"ab",), 2)  # two ends at one byte
@example([], WITH_EOS, [4], (), 3)
def test_any_windows(prompt, output, counts, stops, budget):
    prompt = [vocab.BOS, *prompt]
    expected = reference(output[: sum(counts)], stops, budget)
    assert in_windows(prompt, output, counts, stops, budget) == expected


def test_shapes_are_shared():
    assert Stops.of([b"abc"]).ids.shape == Stops.of([b"wxyz"]).ids.shape
    assert Stops.of([b"a", b"bc", b"d"]).ids.shape == Stops.of([b"ab"] * 4).ids.shape


@pytest.mark.parametrize(
    ("strings", "rows"),
    [
        ([np.array([5, 6]), b"\2"], [[(5, 6), (6,)]]),
        (np.array([[5, 6], [7, 8]]), [[(5, 6), (7, 8)]]),
        ([[np.array([5])], [], [bytearray(b"\1\2")]], [[(5,)], [], [(5, 6)]]),
        (["é", "b"], [[tuple(bytes_of("é")), (102,)]]),
        ([["é"], []], [[tuple(bytes_of("é"))], []]),
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


@pytest.mark.parametrize(
    ("strings", "says"),
    [
        *((x, "bytes, text or ids") for x in ([3], [b"ab", [b"c"]], [[b"ab"], [["c"]]], [[1.5]])),
        *((x, "must be a list of strings") for x in ("ab", b"ab")),
        *((x, "empty") for x in ([(), (1, 2)], [(1, 2), ()], [[b"a"], [b""]], [b""], [b"a", b""])),
    ],
)
def test_what_is_no_stop_string(strings, says):
    with pytest.raises(ValueError, match=says):
        Stops.of(strings)


def test_a_long_stop_string_is_no_longer_program():
    """One of 5,000 bytes took minutes to compile."""

    def program(stop):
        text = Text(jnp.full((1, BUFFER), vocab.OFFSET), jnp.array([1]))
        emitted, one = jnp.asarray([bytes_of(b"abcde")]), jnp.array([5])
        law = {"prompt": one, "limit": one, "stops": Stops.of([stop])}
        return len(jax.make_jaxpr(stopping.trim)(text, emitted, one, **law).eqns)

    assert program(b"a" * 5000) == program(b"abc")
