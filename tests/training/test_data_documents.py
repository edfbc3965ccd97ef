"""Files as documents: what is one, which are held out, and what a bad file says."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bytelax import vocab
from bytelax.training import documents
from bytelax.training.configs import DataError, Source

CODE = b"# file: a.py\nx = 1\n\n\n# file: b.py\n\n\n\ny = 2\n"


def texts(packed):
    return [
        vocab.decode(packed.ids[begin:end])
        for begin, end in zip(packed.starts[:-1], packed.starts[1:], strict=True)
    ]


def load(path, *, valid="", separator="", valid_fraction=0.0):
    source = Source(str(path), valid=str(valid), separator=separator)
    return documents.load(source, valid_fraction)


def train(path, **settings):
    return texts(load(path, **settings)[0])


def lines(count, *, seed=0):
    rng = np.random.default_rng(seed)
    return [f"{i} {rng.integers(10**9)}" for i in range(count)]


def write_lines(path, rows):
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return path


@given(st.lists(st.binary()))
def test_pack_puts_each_text_between_bos_and_eos(some):
    packed = documents.pack(some)
    assert packed.ids.tolist() == [i for text in some for i in vocab.encode(text, eos=True)]
    assert texts(packed) == some


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "settings", "expected"),
    [
        ("a.txt", b"one\n\n\ntwo", {}, [b"one\n\n\ntwo"]),
        ("a[1].txt", b"\xff\x00", {}, [b"\xff\x00"]),  # looks like a pattern
        ("a.txt", b"one\n\n\n\n two\n", {"separator": r"\n{3,}"}, [b"one", b" two\n"]),
        ("a.txt", b"one\n--\n \n--\ntwo", {"separator": "^--\n"}, [b"one\n", b"two"]),
        ("a.txt", CODE, {"separator": r"\n*^# file: .*\n"}, [b"x = 1", b"\n\n\ny = 2\n"]),
        (
            "a.txt",
            CODE,
            {"separator": "^(?=# file: )"},
            [b"# file: a.py\nx = 1\n\n\n", b"# file: b.py\n\n\n\ny = 2\n"],
        ),
        ("a.py", b"x = 1\n\n\n\ny = 2\n", {"separator": r"\n{3,}"}, [b"x = 1\n\n\n\ny = 2\n"]),
        ("a.jsonl", b'{"text": "\\u00e9\\n"}\n\n{"text": ""}\n{"text": "b"}', {},
         ["é\n".encode(), b"b"]),
    ],
)  # fmt: skip
def test_what_is_a_document(tmp_path, name, content, settings, expected, zipped):
    path = tmp_path / (name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert train(path, **settings) == expected


def test_files_directories_and_globs(tmp_path):
    for name in ("b.txt", "a.py", "LICENSE", "c/d.txt", "c/e.jsonl", ".hidden/f.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}')

    def found(path):
        return [name.removeprefix(f"{tmp_path}/") for name in documents.files(f"{tmp_path}{path}")]

    assert found("") == ["a.py", "b.txt", "c/d.txt", "c/e.jsonl"]
    assert found("/b.txt") == ["b.txt"]
    assert found("/*.txt") == ["b.txt"]
    assert found("/**/*.txt") == ["b.txt", "c/d.txt"]


def test_files_held_out_are_not_trained_on(tmp_path):
    for name in ("train-0", "train-1", "valid"):
        (tmp_path / f"{name}.txt").write_text(name)
    kept, held = load(tmp_path, valid=tmp_path / "v*.txt", valid_fraction=0.5)
    assert texts(kept) == [b"train-0", b"train-1"]
    assert texts(held) == [b"valid"]


@pytest.mark.parametrize("fraction", [0.0, 0.02, 0.5])
def test_the_split_parts_the_documents(tmp_path, fraction):
    rows = lines(2000)
    kept, held = map(texts, load(write_lines(tmp_path / "a.jsonl", rows), valid_fraction=fraction))
    assert sorted(kept + held) == sorted(row.encode() for row in rows)
    assert not set(kept) & set(held)
    assert abs(len(held) - fraction * 2000) <= 4 * (fraction * 2000) ** 0.5


def test_the_split_stays_when_files_are_added_moved_and_copied(tmp_path):
    rows = lines(300)
    path = write_lines(tmp_path / "b.jsonl", rows)
    held = set(texts(load(path, valid_fraction=0.2)[1]))
    more = tmp_path / "more"
    more.mkdir()
    write_lines(more / "a.jsonl", lines(50, seed=1))
    write_lines(more / "z.jsonl", rows[::-1] + rows[:10])
    kept_later, held_later = map(set, map(texts, load(more, valid_fraction=0.2)))
    assert held <= held_later
    assert not held & kept_later


def test_the_split_grows_with_its_fraction(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", lines(300))
    small, large = (set(texts(load(path, valid_fraction=f)[1])) for f in (0.1, 0.3))
    assert small < large


ZIPPED = gzip.compress(np.random.default_rng(0).bytes(1000))
FLIPPED = ZIPPED[:500] + bytes([ZIPPED[500] ^ 0xFF]) + ZIPPED[501:]


@pytest.mark.parametrize(
    ("name", "content", "settings", "said"),
    [
        ("a.txt.gz", b"no gzip", {}, r"a\.txt\.gz: cannot be read: Not a gzipped file"),
        ("a.txt.gz", ZIPPED[:-30], {}, r"a\.txt\.gz: cannot be read: Compressed file ended"),
        ("a.txt.gz", FLIPPED, {}, r"a\.txt\.gz: cannot be read: CRC check failed"),
        ("a.jsonl", b'{"text": "x"}\n{"text": ', {}, r"a\.jsonl:2: not a line"),
        ("a.jsonl", b'{"text": "x"}\n\n"x"\n', {}, r"a\.jsonl:3: not a line"),
        ("a.jsonl", b'{"body": "x"}\n', {}, r"a\.jsonl:1: not a line .*'text'"),
        ("a.jsonl", b'{"text": null}\n', {}, r"a\.jsonl:1: not a line"),
        ("a.jsonl", b'{"text": "\xff"}\n', {}, r"a\.jsonl:1: not a line"),
        ("a.csv", b"a", {}, r"a\.csv is none of \.txt, "),
        ("a.gz", b"a", {}, r"a\.gz is none of"),
    ],
)
def test_bad_files(tmp_path, name, content, settings, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said) as error:
        load(tmp_path / name, **settings)
    assert "\n" not in str(error.value)


def test_bad_paths(tmp_path):
    (tmp_path / "LICENSE").write_text("x")
    with pytest.raises(DataError, match=r"nothing\*: no such file"):
        load(tmp_path / "nothing*")
    with pytest.raises(DataError, match=r"no such file of \.txt"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"path": ""}, "needs a path"),
        ({"path": "a", "weight": 0.0}, "a: the weight must be positive, not 0.0"),
        ({"path": "a", "weight": -1.0}, "positive"),
        ({"path": "a", "weight": float("nan")}, "positive"),
        ({"path": "a", "weight": float("inf")}, "positive"),
        ({"path": "a", "separator": "("}, "separator"),
    ],
)
def test_bad_sources(fields, said):
    with pytest.raises(DataError, match=said):
        Source(**fields)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/*.txt", Source("a/*.txt")),
        (r'a.txt weight=2 separator="^# file: .*\n"', Source("a.txt", 2.0, "", r"^# file: .*\n")),
        ("'a b.txt' valid=v.txt", Source("a b.txt", valid="v.txt")),
    ],
)
def test_parse(text, expected):
    assert Source.parse(text) == expected


WORDS = st.text(" '\"\\#=\n\t\0aé日")  # what a shell and a parser read otherwise


@given(WORDS.filter(bool), st.floats(1e-3, 1e3), WORDS)
def test_parse_reads_what_str_writes(path, weight, valid):
    source = Source(path, weight, valid, r"\n{3,} '")
    assert Source.parse(str(source)) == source


@pytest.mark.parametrize("text", ["", "a.txt b.txt", "a.txt weight=x", "a.txt size=3", "'a.txt"])
def test_parse_says_what_a_source_is(text):
    with pytest.raises(DataError, match="a source is a path, then any of weight=, valid=, "):
        Source.parse(text)


@pytest.mark.parametrize("count", [1, 3])
def test_the_tail_is_held_out_where_there_are_too_few_documents(tmp_path, count):
    rows = [f"line {i} of document {i // 100}\n" for i in range(300)]
    separator = "" if count == 1 else r"(?<=document 0\n)(?=line 100 )|(?=line 200 )"
    path = tmp_path / "a.txt"
    path.write_text("".join(rows))
    whole, _ = load(path, separator=separator)
    kept, held = load(path, separator=separator, valid_fraction=1e-9)
    assert len(whole.starts) - 1 == count
    assert b"".join(texts(kept) + texts(held)) == b"".join(texts(whole))
    assert held.bytes == pytest.approx(path.stat().st_size / 10, abs=40)
    (tail,) = texts(held)
    assert tail.startswith(b"line 2")  # cut at a line's end


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("side", [False, True])
def test_the_tail_is_held_out_whatever_the_hashes_of_few_documents_are(tmp_path, side, count):
    """Otherwise one file in a hundred would be held out whole."""
    some = [f"document {number}\n".encode() + b"and a line of it\n" * 9 for number in range(50)]
    chosen = [text for text in some if documents._is_held_out(text, 0.3) == side][:count]
    (tmp_path / "a.txt").write_bytes(b"\0".join(chosen))
    kept, tail = map(texts, load(tmp_path / "a.txt", separator="\0", valid_fraction=0.3))
    assert b"".join(kept + tail) == b"".join(chosen)
    assert 0 < sum(map(len, tail)) < sum(map(len, chosen)) / 5


def test_a_tail_of_whole_documents_and_of_one_line(tmp_path):
    path = tmp_path / "a.jsonl"
    write_lines(
        path, ["a" * 89, *("b" * 8,)]
    )  # the tail is the second document and its BOS and EOS
    kept, held = load(path, valid_fraction=1e-9)
    assert (texts(kept), texts(held)) == ([b"a" * 89], [b"b" * 8])
    path = tmp_path / "b.txt"
    path.write_bytes(b"x" * 998)
    kept, held = load(path, valid_fraction=1e-9)
    assert (kept.bytes, held.bytes) == (899, 99)


def test_the_tail_of_a_large_text_is_a_share(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"0123456789\n" * 100_000)
    _, held = load(path, valid_fraction=0.05)
    assert held.bytes == pytest.approx(55_000, abs=12)
    _, held = load(path, valid_fraction=1e-9)
    assert held.bytes == pytest.approx(16_384, abs=12)
