"""A constraint is obeyed exactly: by plain decoding, and by every lossless method as by that.

The law is enumerated with small automata; greedy rows are those of the empty draft, bit for bit.
"""

import functools
import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import constraints, vocab
from bytelax.decode import (
    Automaton,
    Method,
    Params,
    Sampling,
    Stops,
    Text,
    block_verification,
    lossless,
    rejection,
    stopping,
)
from bytelax.testing import (
    TableDrafter,
    TableTarget,
    assert_lossless,
    distance,
    exact_law,
    table,
    target_law,
)
from tests.decode import test_append as append
from tests.decode import test_exact_law as law
from tests.helpers import models_for_tests as models
from tests.helpers import setups
from tests.helpers.marks import exhaustive, slow

FINITE = constraints.choice([b"\0\1", b"\2", b"\1\1\0", b"\1"])


def automaton(rows, accepting):
    """Of rows that map a byte to the next state."""
    following = np.full((len(rows), 256), -1, np.int32)
    for row, steps in zip(following, rows, strict=True):
        row[[*steps]] = [*steps.values()]
    return Automaton.of(following, accepting)


# Goes on forever; something is forbidden in each state, and EOS in the first.
ENDLESS = automaton([{0: 1, 1: 0}, {1: 2, 2: 1}, {0: 0, 1: 2, 2: 0}], [1, 2])
AUTOMATA = {"endless": ENDLESS, "finite": FINITE}


def accepts(given, text):
    """Whether a text is one of an automaton, by its arrays; and whether one begins with it."""
    following, state = np.asarray(given.following), int(given.start)
    for one in vocab.encode(bytes(text), bos=False):
        state = following[state, one]
        if state < 0:
            return False, False
    return following[state, vocab.EOS] >= 0, True


# Automata


def test_states_without_an_end_are_left_out():
    dead = automaton([{0: 1, 1: 2}, {0: 1}, {2: 0, 1: 3}, {}, {0: 3}], [3])
    kept = np.asarray(dead.following)
    assert (kept[3:] < 0).all() and not np.asarray(dead.complete)[3:].any()
    for text in map(bytes, itertools.product(range(3), repeat=4)):
        assert accepts(dead, text)[0] == bool(re.fullmatch(rb"(\x01\x02)*\x01\x01", text))
    assert accepts(dead, b"\0") == (False, False)
    with pytest.raises(ValueError, match="no text satisfies"):
        automaton([{0: 1}, {}, {}], [2])
    with pytest.raises(ValueError, match=r"states are 0\.\.1"):
        automaton([{0: 2}, {}], [1])
    with pytest.raises(ValueError, match="not a mask"):
        automaton([{0: 1}, {}], [False, True])


def test_utf8_is_what_decodes():
    given = constraints.utf8()
    edges = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC]
    edges += [0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF]
    for length in range(4):
        for text in map(bytes, itertools.product(edges, repeat=length)):
            assert accepts(given, text)[0] == _decodes(text), text
    for first, second in itertools.product((0xF0, 0xF1, 0xF4), edges):
        text = bytes([first, second, 0x80, 0xBF])
        assert accepts(given, text)[0] == _decodes(text), text


def _decodes(text):
    try:
        return bool(text.decode()) or not text
    except UnicodeDecodeError:
        return False


def test_choices():
    texts = [b"yes", "yé", b"", b"no"]
    given = constraints.choice(texts)
    for text in (b"yes", "yé".encode(), b"", b"no", b"y", b"nope", b"ye", b"yess"):
        assert accepts(given, text)[0] == (text in [vocab.as_bytes(x) for x in texts])
    with pytest.raises(ValueError, match="no text"):
        constraints.choice([])
    assert accepts(constraints.choice("yes"), b"yes")[0]


@pytest.mark.parametrize(
    "pattern", [r"[0-9]{3}-[0-9]{2}|é+[^a]", "(ab|cd)*", "((ab)+c?)+|d", "a.b|[^a]{2}(xyz)*"]
)
def test_patterns_are_matched_as_python_matches_them(pattern):
    pytest.importorskip("outlines_core")
    given = constraints.regex(pattern)
    rng, ended = np.random.default_rng(0), 0
    for _ in range(50):
        text = _walk(given, rng)
        ended += bool(text)
        assert re.fullmatch(pattern, text.decode())
        wrong = bytearray(text or b"x")
        wrong[rng.integers(len(wrong))] = rng.integers(128)
        expected = _decodes(bytes(wrong)) and re.fullmatch(pattern, bytes(wrong).decode())
        assert accepts(given, wrong)[0] == bool(expected)
    assert ended


def _walk(given, rng):
    """A text of an automaton, at random."""
    following, state, text = np.asarray(given.following), int(given.start), bytearray()
    while True:
        ways = np.flatnonzero(following[state, vocab.OFFSET :] >= 0)
        if following[state, vocab.EOS] >= 0 and (not len(ways) or rng.random() < 0.3):
            return bytes(text)
        text.append(rng.choice(ways))
        state = following[state, vocab.OFFSET + text[-1]]


def test_json_of_a_schema():
    pytest.importorskip("outlines_core")
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 5},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        },
        "required": ["name", "age"],
    }
    rng = np.random.default_rng(0)
    for given in (constraints.json_schema(schema), constraints.json_schema(json.dumps(schema))):
        for _ in range(20):
            read = json.loads(_walk(given, rng))
            assert len(read["name"]) <= 5 and isinstance(read["age"], int)
            assert {*read.get("tags", [])} <= {"a", "b"}


def test_what_is_no_pattern_is_told():
    """Anchors too: before the mark of the end they match nothing, so their texts would be lost."""
    pytest.importorskip("outlines_core")
    with pytest.raises(ValueError, match="is not a pattern"):
        constraints.regex("a{")
    patterns = ["(", ")", "a)(b", "[a(]b)", "a\\", "(?ix)a", "(?s-m:(?x: a))"]
    for pattern in [*patterns, "ab$|abc", r"ab\z|abc", r"(?m)(ab$|abc)", "a^b|abc", r"\\$"]:
        with pytest.raises(ValueError, match="has an anchor, the flag x, or brackets without"):
            constraints.regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\(\)\[\$\^\\", [b"()[$^\\"]),
        (r"[$^()]+x|[^]a$]x", [b"$^()x", b"bx"]),
        (r"[]$]\\b(?P<x>(?i:a)|(b(c)))", [b"]\\bA", b"$\\bbc"]),
        (r"[[:alpha:]&&[^$a]](?:\x{24}|\p{Greek})", ["bλ".encode(), b"c$"]),
        (r"é\u{1F600}?|\xff", ["é😀".encode(), "ÿ".encode()]),
    ],
)
def test_brackets_and_anchors_as_characters(pattern, texts):
    pytest.importorskip("outlines_core")
    given = constraints.regex(pattern)
    for text in texts:
        assert accepts(given, text) == (True, True)
        assert not accepts(given, text + b"$")[0] and not accepts(given, text[:-1])[0]


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"type": "string", "pattern": "^yes|no$"}, ["yes", "no"], ["yesno", "y"]),
        ({"type": "string", "pattern": r"^\w\d|\$"}, ["a1", "_2"], ["a٣", "éa1"]),
        ({"type": "string", "format": "date"}, ["2026-11-25"], ["٢٠٢٦-11-25"]),
        ({"enum": ["pattern", "é|\\d"]}, ["pattern", "é|\\d"], ["é"]),
        (
            {"type": "array", "items": {"type": "string", "pattern": "a|b"}, "maxItems": 1},
            [["a"], ["b"]],
            ["a"],
        ),
    ],
)
def test_patterns_in_a_schema(schema, right, wrong):
    pytest.importorskip("outlines_core")
    given = constraints.json_schema(schema)
    for texts, expected in ((right, True), (wrong, False)):
        for text in texts:
            assert accepts(given, json.dumps(text, ensure_ascii=False).encode())[0] == expected
    for seed in range(9):
        json.loads(_walk(given, np.random.default_rng(seed)))
    with pytest.raises(ValueError, match="not a JSON schema"):
        constraints.json_schema("no")


# The law


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drafter", "accept"),
    [(TableDrafter(2), rejection), (TableDrafter(2, ragged=True), block_verification)],
)
def test_the_law_of_tables(drafter, accept):
    params = Params(table(3, 13), table(3, 1), ENDLESS)
    method = Method(TableTarget(), drafter, accept)
    assert_lossless(method, params, temperature=1.0, top_p=1.0)


def error(setup, accept, given, new_bytes=4, **how):
    params = setup.params._replace(constraint=given)
    how = {"prompt": law.PROMPT, "new_bytes": new_bytes, "rows": 64, **how}
    found = exact_law(Method(setup.target, setup.drafter, accept), params, **how)
    alone = target_law(Method(setup.target), params, **how)
    assert abs(sum(found.values()) - 1) < law.EXACT and len(alone) > 2
    return distance(found, alone)


# A constraint meets a drafter through the states that its draft walks, so a drafter of each shape.
@pytest.mark.parametrize(
    ("name", "given", "new_bytes"),
    [
        ("three bytes", "finite", 4),
        *(
            slow(*case)
            for case in (
                ("blt-s", "endless", 4),
                ("blt-dv", "finite", 4),
                ("composed", "endless", 4),
                ("draft model", "finite", 4),
                ("medusa tree", "endless", 3),
                ("eagle tree", "finite", 3),
            )
        ),
        exhaustive("medusa", "finite", 4),
        exhaustive("eagle", "endless", 4),
        exhaustive("several", "endless", 3),
    ],
)
def test_the_law_of_every_kind_of_drafter(name, given, new_bytes):
    accept = lossless if name in setups.TREES else rejection
    assert error(law.ALL[name](), accept, AUTOMATA[given], new_bytes, **law.CUT) < law.EXACT


@pytest.mark.slow
def test_the_law_without_eos():
    how = {"temperature": 1.0, "allow_eos": False}
    assert error(law.tables(), rejection, FINITE, **how) < law.EXACT


# Greedy rows


def decoded(method, params):
    begin = jax.jit(functools.partial(method.init, log_probs=True))
    decoding = begin(params, append.first_text(), budget=append.BUDGETS[0] + 20)
    return jax.jit(method.decode)(params, decoding)


@setups.each(slow=["blt-dv", "draft model", "eagle tree"])
def test_greedy_rows_are_those_of_the_empty_draft(name):
    setup = append.of_name(name)
    params = setup.params._replace(constraint=ENDLESS)
    found = decoded(setup.method(), params)
    plain = decoded(setup.without_drafts(), params)
    np.testing.assert_array_equal(found.ended, plain.ended)
    np.testing.assert_array_equal(found.automaton, plain.automaton)
    np.testing.assert_array_equal(found.text.length, plain.text.length)
    there = np.arange(append.BUFFER) < np.asarray(plain.text.length)[:, None]
    for one, other in ((found.text.ids, plain.text.ids), (found.log_probs, plain.log_probs)):
        exact = one.dtype == jnp.int32 or name not in setups.TO_ROUNDING
        np.testing.assert_allclose(
            np.where(there, one, 0), np.where(there, other, 0), rtol=0, atol=0 if exact else 1e-5
        )
    free, found = jax.device_get((decoded(setup.method(), setup.params), found))
    assert (free.text.ids != found.text.ids).any()
    for row in range(append.ROWS):
        ids = found.text.ids[row, found.prompt[row] : found.text.length[row]]
        assert accepts(ENDLESS, vocab.decode(ids.tolist()))[1]


# Ends


def test_a_row_ends_where_nothing_may_follow():
    chain = models.chain(b"abcdef")
    given = constraints.choice([b"cd", b"cdef", b"ab", b""])
    out = bytelax.generate(
        chain, [b"b", b"f", b"b", b"b"], allow_eos=False, constraint=given,
        max_new_bytes=[4, 9, 3, 9], stop=[[], [], [], [b"e"]],
    )  # fmt: skip
    assert [(x.bytes, x.stop) for x in out.results] == [
        (b"cdef", "constraint"), (b"ab", "constraint"), (b"cde", "length"), (b"cd", "stop")
    ]  # fmt: skip
    assert [result.stats.bytes for result in out.results[:2]] == [4, 2]
    # After f the model ends its text. It must not before one of the texts stands there.
    ends = models.chain(b"abcdef", loop=False)
    given = constraints.choice([b"cd", b"ef", b"f", b"fa"])
    out = bytelax.generate(ends, [b"f", b"d", b"e"], constraint=given)
    assert [result.stop for result in out.results] == ["constraint", "constraint", "eos"]
    assert out.bytes[1:] == [b"ef", b"f"]
    out = bytelax.generate(ends, [b"a"] * 3, constraint=constraints.choice([b""]))
    assert [(x.bytes, x.stop) for x in out.results] == [(b"", "constraint")] * 3


@pytest.mark.slow
def test_rules_that_are_not_lossless_obey_too():
    small = models.model(models.replace(models.VARIANTS["own_embedding"], block_size=6))
    free, bound = (
        bytelax.generate(
            small, [b"abc", "日本".encode()], method="blt-d", block_size=5, max_new_bytes=24,
            allow_eos=False, constraint=given,
        )
        for given in (None, constraints.utf8())
    )  # fmt: skip
    assert not all(accepts(constraints.utf8(), text)[1] for text in free.bytes)
    assert all(accepts(constraints.utf8(), text)[1] for text in bound.bytes)
    assert [len(text) for text in bound.bytes] == [24, 24]


def test_each_turn_obeys_anew():
    chain = models.chain(b"abcdef")
    given = constraints.choice([b"cd", b"ab"])
    results = list(
        bytelax.turns(chain, [b"xb", b"f", b"", b"b"], constraint=given, max_new_bytes=9)
    )
    assert [result.bytes for result in results] == [b"cd", b"ab", b"cd", b"cd"]


def test_states_and_stops_of_a_batch_with_any_windows():
    """Rows that stand still keep their states."""
    params = Params(table(3, 13), table(3, 1), ENDLESS)
    method = Method(TableTarget(), TableDrafter(2))
    text = Text.of([b"\0\1", b"\1", b"\2\2"], length=40)
    sampling = Sampling.of(3, temperature=1.0, allow_eos=False)

    @jax.jit
    def run(params, text, budget):
        begin = method.init(params, text, budget=budget, stops=Stops.of([]), sampling=sampling)
        return method.decode(params, begin)

    decoding = jax.device_get(run(params, text, jnp.array([30, 3, 17])))
    assert (decoding.ended == stopping.BY_LENGTH).all()
    following = np.asarray(ENDLESS.following)
    for row, budget in enumerate((30, 3, 17)):
        written = decoding.text.ids[row, decoding.prompt[row] : decoding.text.length[row]]
        state = int(ENDLESS.start)
        for one in written:
            state = following[state, one]
            assert state >= 0
        assert len(written) == budget and state == decoding.automaton[row]
