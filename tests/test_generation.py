"""`generate`, `stream`, `generate_many`."""

import functools
import math

import jax
import numpy as np
import pytest

import bytelax
from bytelax import vocab
from bytelax.running import programs
from bytelax.running.engine import Engine
from tests.helpers import models_for_tests as models
from tests.helpers.marks import exhaustive, slow

PROMPTS = [b"Ragged prompts: ", bytes(range(256))[::-1][:70], "naïve 日本".encode()]
NEW = 24


@functools.cache
def blt(dtype="float32"):
    return models.model(models.BASE, dtype)


@functools.cache
def byte_lm(dtype="float32"):
    return models.model(models.BYTE_LMS["window"], dtype)


@functools.cache
def chain(text, loop=True):
    return models.chain(text, loop=loop)


@functools.cache
def greedy(which, window):
    return bytelax.generate(
        which(), PROMPTS, max_new_bytes=NEW, allow_eos=False, window=window, logprobs=True
    )


def logits_of_output(model, prompt, output):
    """f32[len(output), V]: what the model thinks before each byte of the output."""
    ids = np.full((1, 128), vocab.OFFSET, np.int32)  # what follows a text does not matter
    text = vocab.encode(prompt + output)
    ids[0, : len(text)] = text
    begin = len(text) - len(output) - 1
    return np.asarray(model.logits(ids))[0, begin : begin + len(output)]


# Greedy text


@pytest.mark.parametrize("which", [byte_lm, slow(blt)])
def test_greedy_bytes_are_the_likeliest(which):
    out = greedy(which, None)
    assert out.lossless
    for prompt, result in zip(PROMPTS, out.results, strict=True):
        assert isinstance(result.bytes, bytes) and len(result.bytes) == NEW
        assert result.stop == "length"
        logits = logits_of_output(which(), prompt, result.bytes)[:, vocab.OFFSET :]
        np.testing.assert_array_equal(logits.argmax(-1), list(result.bytes))
        # Far beyond rounding, and yet no foregone conclusion.
        margins = np.diff(np.sort(logits)[:, -2:])
        assert margins.min() > 1e-4 and np.median(margins) < 0.5 * logits.std()
    assert out.text == [b.decode("utf-8", "replace") for b in out.bytes]


# Chance


def drawn(seeds, prompts=PROMPTS, **more):
    # All ids are kept, by the program that keeps fewer.
    law = {"temperature": 1.0, "top_k": vocab.BYTES, "allow_eos": False}
    law |= {"max_new_bytes": NEW, "logprobs": True}
    return bytelax.generate(byte_lm(), prompts, seeds=seeds, **law | more)


def sampled(*args, **more):
    return drawn(*args, **more).bytes


def test_seeds():
    first = sampled([5, 6, 7])
    assert sampled([5, 6, 7]) == first
    assert sampled(5) == first  # one number: 5, 6, 7
    assert all(a != b for a, b in zip(sampled([8, 9, 2**32 - 1]), first, strict=True))
    again, _, other = sampled([5, 5, 6], [PROMPTS[0]] * 3)
    assert again == first[0] and other != again


def test_chance_comes_from_the_request_not_from_the_row():
    first = sampled([5, 6, 7])
    order = [2, 0, 1]
    moved = sampled([[5, 6, 7][i] for i in order], [PROMPTS[i] for i in order])
    assert moved == [first[i] for i in order]
    beside = sampled([100, 6, 200], [b"someone", PROMPTS[1], b"else entirely, and longer"])
    assert beside[1] == first[1]


def test_rows_may_have_settings_of_their_own():
    """What a row writes is what it writes beside rows of its own kind, greedy rows included."""
    own = {"temperature": [0.0, 0.7, 0.0], "top_k": [0, 3, 0], "top_p": (1.0, 1.0, 0.5)}
    mixed = sampled([5, 6, 7], **own)
    assert mixed[::2] == greedy(byte_lm, None).bytes[::2]
    assert mixed[1] == sampled([5, 6, 7], temperature=0.7, top_k=3)[1]


def test_truncation_is_obeyed():
    for options, most in (({"top_k": 2}, 2), ({"top_p": 1e-6}, 1)):
        for prompt, output in zip(PROMPTS, sampled(0, **options), strict=True):
            logits = logits_of_output(byte_lm(), prompt, output)[:, vocab.OFFSET :]
            chosen = logits[np.arange(NEW), list(output)]
            assert ((logits > chosen[:, None] + 1e-4).sum(-1) < most).all()


@pytest.mark.parametrize("temperature", [slow(0.0), 1.0])
def test_logprobs_are_those_of_the_model(temperature):
    """Of the untouched model, whatever is sampled from."""
    if temperature:
        out, model = drawn(0, temperature=0.7, top_k=9), byte_lm()
    else:
        out, model = greedy(blt, None), blt()
    for prompt, result in zip(PROMPTS, out.results, strict=True):
        assert result.log_probs.shape == (NEW,)
        logits = models.without_specials(logits_of_output(model, prompt, result.bytes))
        law = np.asarray(jax.nn.log_softmax(logits))
        place = np.arange(NEW), vocab.encode(result.bytes, bos=False)
        np.testing.assert_allclose(result.log_probs, law[place], rtol=0, atol=1e-5)


# Ends


TEXT = "aé日x😀".encode()


def test_budget_and_prompts_of_any_bytes():
    model = chain(b"\xff\x00\xc3a\xfe")
    prompts = [b"\xff", b"\x00\xc3", bytes(range(128)), bytes(range(128, 256))]
    out = bytelax.generate(model, prompts, max_new_bytes=7, allow_eos=False)
    assert out.bytes == [
        b"\x00\xc3a\xfe\xff\x00\xc3",
        b"a\xfe\xff\x00\xc3a\xfe",
        b"\xff\x00\xc3a\xfe\xff\x00",
        b"\x00\xc3a\xfe\xff\x00\xc3",
    ]
    assert [result.stop for result in out.results] == ["length"] * 4
    assert [result.stats.bytes for result in out.results] == [7] * 4
    assert [result.index for result in out.results] == [0, 1, 2, 3]
    assert out.results[0].log_probs is None and out.results[0].origins is None  # unless asked for


@pytest.mark.parametrize("window", [slow(None), 8])
def test_stop_strings_are_cut_off(window):
    stops, how = ["日x", b"\xf0\x9f", "q"], {"max_new_bytes": 30, "window": window}
    out = bytelax.generate(chain(TEXT), ["a", "x", "日"], stop=stops, **how)
    assert out.bytes == ["é".encode(), b"", b"x"]
    assert [result.stop for result in out.results] == ["stop"] * 3
    assert [result.stats.bytes for result in out.results] == [6, 2, 3]


def test_the_longest_stop_is_cut_off_and_one_in_the_prompt_ends_nothing():
    stops = [[b"d", b"bcd", b"cd"], [b"ab", b"bc"], [b"abcd"]]
    out = bytelax.generate(
        chain(b"abcdef"), [b"f", b"ab", b"d"], max_new_bytes=30, stop=stops, window=8
    )
    assert out.bytes == [b"a", b"cdef", b"ef"]  # the second "ab" is its own
    assert [result.stop for result in out.results] == ["stop"] * 3


def test_eos():
    model = chain(b"abc", loop=False)
    out = bytelax.generate(model, [b"a", b"c", b"b"], max_new_bytes=9)
    assert out.bytes == [b"bc", b"", b"c"]
    assert [result.stop for result in out.results] == ["eos"] * 3
    assert [result.stats.bytes for result in out.results] == [3, 1, 2]
    out = bytelax.generate(model, [b"a", b"c", b"b"], max_new_bytes=9, allow_eos=False)
    assert [len(b) for b in out.bytes] == [9] * 3


def broken(value):
    return models.broken_after("d", chain(b"abcdef"), value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("law", [{}, exhaustive({"temperature": 1.0, "top_k": 1})])
def test_logits_that_are_no_numbers_end_a_row(value, law):
    out = bytelax.generate(
        broken(value), [b"ea", b"de", b"d"], max_new_bytes=9, method="lookup", draft_length=3,
        logprobs=True, stop=[b"b"], **law,
    )  # fmt: skip
    reasons = [(each.bytes, each.stop) for each in out.results]
    assert reasons == [(b"", "stop"), (b"", "not-finite"), (b"", "not-finite")]
    assert [len(each.log_probs) for each in out.results] == [0] * 3
    out = bytelax.generate(broken(value), [b"ea"] * 3, max_new_bytes=9, **law)
    assert [(each.bytes, each.stop) for each in out.results] == [(b"bcd", "not-finite")] * 3


def test_logits_that_are_no_numbers_end_a_stream():
    pieces = bytelax.stream(broken(np.nan), "ea", every=5, max_new_bytes=9, stop=NEVER)
    assert next(pieces) == "bcd"
    with pytest.raises(ValueError, match="logits after 3 bytes are NaN or infinite"):
        next(pieces)


# Batches


@pytest.mark.slow
def test_prompts_of_other_lengths_run_apart():
    """Bit for bit as without them, in the order of the prompts, with their own seeds and laws."""
    long = bytes(32 + i % 90 for i in range(300))
    request = {"max_new_bytes": 9, "allow_eos": False, "logprobs": True, "origins": True}
    laws = {"temperature": [1.0, 0.5, 0.0, 2.0], "seeds": [4, 5, 6, 7]}

    def run(prompts, rows):
        own = {name: [values[row] for row in rows] for name, values in laws.items()}
        return bytelax.generate(byte_lm(), prompts, **own, **request)

    out = run([b"a", long, b"b", long[:280]], [0, 1, 2, 3])
    assert [each.index for each in out.results] == [0, 1, 2, 3]
    apart = [run([b"a", b"b"], [0, 2]), run([long, long[:280]], [1, 3])]
    for rows, part in zip(([0, 2], [1, 3]), apart, strict=True):
        for row, alone in zip(rows, part.results, strict=True):
            assert out.results[row].bytes == alone.bytes
            np.testing.assert_array_equal(out.results[row].log_probs, alone.log_probs)
            assert len(out.results[row].origins.names) == 9
    assert out.stats.bytes == 36
    assert out.stats.batch_windows == sum(part.stats.batch_windows for part in apart)
    assert out.stats.seconds > out.stats.prefill_seconds > 0


@pytest.mark.slow
def test_an_empty_prompt_is_the_beginning_of_a_text():
    law = {"max_new_bytes": 6, "logprobs": True}
    first, second = (bytelax.generate(byte_lm(), [text], **law).results[0] for text in ("", b""))
    assert first.bytes == second.bytes and len(first.bytes) == 6
    likeliest = logits_of_output(byte_lm(), b"", first.bytes)[:, vocab.OFFSET :].argmax(-1)
    np.testing.assert_array_equal(likeliest, list(first.bytes))
    assert "".join(bytelax.stream(byte_lm(), "", **law)) == first.text
    (many,) = bytelax.generate_many(byte_lm(), [""], batch=1, **law)
    assert many.bytes == first.bytes


# Streams


NEVER = [b"\xff" * 8, b"\xff", b"\xfe"]  # stop strings of the shape of those that end a text


@pytest.mark.parametrize("every", [5, *map(slow, (1, 2, 3, 8))])
@pytest.mark.parametrize("budget", [22, 23, 24])  # 22 are whole characters; 24 end inside one
def test_stream_is_the_text_in_whole_characters(every, budget):
    model, how = chain(TEXT), {"max_new_bytes": budget, "stop": NEVER}
    pieces = list(bytelax.stream(model, "😀", every=every, **how))
    (text,) = bytelax.generate(model, ["😀"], **how).text
    assert "".join(pieces) == text
    assert all(pieces) and not any("\ufffd" in piece for piece in pieces[:-1])
    assert "\ufffd" not in text[:10]
    if every < 8:
        assert len(pieces) > 2


@pytest.mark.parametrize("every", [exhaustive(1), slow(2), 5])
@pytest.mark.parametrize("stop", [slow(["日x"]), slow(["😀", "zzzzzzzz"]), ["x😀", "aé日x", "q"]])
def test_stop_strings_never_show_in_a_stream(stop, every):
    model = chain(TEXT)
    pieces = list(bytelax.stream(model, "日", every=every, max_new_bytes=40, stop=stop))
    out = bytelax.generate(model, ["日"], max_new_bytes=40, stop=stop)
    assert "".join(pieces) == out.text[0]
    assert out.results[0].stop == "stop"


@pytest.mark.slow
def test_stream_samples_as_generate_does():
    law = {"temperature": 1.0, "max_new_bytes": NEW}
    pieces = bytelax.stream(byte_lm(), PROMPTS[0], seeds=11, **law)
    assert "".join(pieces) == bytelax.generate(byte_lm(), PROMPTS[:1], seeds=11, **law).text[0]


# Queues


def by_index(results):
    results = list(results)
    found = {result.index: result for result in results}
    assert sorted(found) == list(range(len(results)))  # each once
    return [found[index] for index in range(len(results))]


MANY = [PROMPTS[i % 3][: 5 + 3 * i] for i in range(7)]
MANY[4] = bytes(32 + i % 90 for i in range(300))  # needs a larger buffer


@pytest.mark.slow  # test_results_come_as_they_finish has a queue too
@pytest.mark.parametrize("temperature", [exhaustive(0.0), 1.0])
def test_generate_many_as_one_by_one(temperature):
    request = {
        "max_new_bytes": NEW,
        "temperature": temperature,
        "stop": [bytes([i]) for i in range(16)],
    }
    results = by_index(bytelax.generate_many(byte_lm(), iter(MANY), batch=2, seeds=40, **request))
    assert len(results) == len(MANY)
    lengths = set()
    for index, (prompt, result) in enumerate(zip(MANY, results, strict=True)):
        (alone,) = bytelax.generate(byte_lm(), [prompt], seeds=40 + index, **request).results
        assert (result.bytes, result.stop) == (alone.bytes, alone.stop), index
        assert result.stats.bytes == alone.stats.bytes
        lengths.add(len(result.bytes))
    assert len(lengths) > 2  # rows were refilled at different times


@pytest.mark.slow
def test_rows_are_refilled_together(monkeypatch):
    """An eighth of the batch at once; each prompt is taken in once, and alone."""
    taken, start = [], Engine.start

    def counted(self, asked, **how):
        taken.append(sum(map(bool, asked)))
        return start(self, asked, **how)

    request = {"max_new_bytes": NEW, "temperature": 1.0, "stop": [bytes([i]) for i in range(16)]}
    prompts = [bytes([65 + i % 26]) * (1 + i % 9) for i in range(40)]
    alone = bytelax.generate(byte_lm(), prompts, seeds=7, **request)
    monkeypatch.setattr(Engine, "start", counted)
    many = by_index(bytelax.generate_many(byte_lm(), prompts, batch=16, seeds=7, **request))
    assert [result.bytes for result in many] == alone.bytes
    assert sum(taken) == len(prompts) and max(taken) == 2 and len(taken) < 30


@pytest.mark.slow
def test_generate_many_with_a_blt():
    request = {"batch": 2, "max_new_bytes": NEW, "allow_eos": False, "logprobs": True}
    results = by_index(bytelax.generate_many(blt(), PROMPTS * 2, **request))
    for result, alone in zip(results, greedy(blt, None).results * 2, strict=True):
        assert result.bytes == alone.bytes
        assert result.stats.global_passes == alone.stats.global_passes
        assert result.stats.decoder_passes == alone.stats.decoder_passes
        np.testing.assert_allclose(result.log_probs, alone.log_probs, rtol=0, atol=1e-5)
    # Beside others, bit for bit.
    others = [PROMPTS[0], b"quite", PROMPTS[2], b"different", PROMPTS[1], b"company"]
    again = by_index(bytelax.generate_many(blt(), others, **request))
    for index in (0, 2, 4):
        assert again[index].bytes == results[index].bytes
        np.testing.assert_array_equal(again[index].log_probs, results[index].log_probs)


def test_no_prompts_no_results():
    assert list(bytelax.generate_many(byte_lm(), [])) == []


def test_results_come_as_they_finish():
    """A short row is out, and its place taken, before a long one ends."""
    model = chain(b"abcdefghijklmnopqrstu", loop=False)
    results = bytelax.generate_many(model, [b"a", b"t", b"s", b"r", b"q"], batch=2)
    order = [result.index for result in results]
    assert order[-1] == 0 and sorted(order) == [0, 1, 2, 3, 4]


@pytest.mark.slow
def test_progress_adds_up_to_what_was_asked_for():
    """Also if rows end before, at a stop string; and it changes nothing."""
    model = chain(b"abcdefghijklmnopqrstu", loop=False)
    request = {"max_new_bytes": [30, 9], "samples": 2, "stop": "t"}
    plain = bytelax.generate(model, [b"a", b"d" * 299], **request)
    calls = []
    shown = bytelax.generate(model, [b"a", b"d" * 299], progress=calls.append, **request)
    assert shown.bytes == plain.bytes and shown.results[0].stop == "stop"
    assert len(calls) > 2 and min(calls) >= 0 and sum(calls) == 2 * (30 + 9)


# Programs


def compiled():
    return sum(f._cache_size() for f in (programs.start(), programs.advance()))


def test_other_lengths_compile_nothing():
    model = chain(b"abcdef")
    law = {"temperature": 0.5, "top_k": 5, "top_p": 0.9, "stop": [b"abc", b"x"]}
    first = bytelax.generate(model, [b"a", b"bc"], max_new_bytes=9, **law)
    known = compiled()
    assert first.stats.compile_seconds >= 0
    law |= {"temperature": 2.0, "top_k": 50, "top_p": 0.8, "stop": [b"wxyz", b"y"], "seeds": 7}
    for prompts, budget in (([b"d" * 99, b"e"], 9), ([b"f", b"g" * 200], 40)):
        out = bytelax.generate(model, prompts, max_new_bytes=budget, **law)
        assert out.stats.compile_seconds == 0
    assert compiled() == known
    bytelax.generate(model, [b"a" * 299, b"b" * 300], max_new_bytes=9, **law)
    assert compiled() == known + 2  # another bucket: one program to start, one to go on


@pytest.mark.slow
def test_other_numbers_of_prompts_compile_nothing():
    """Rows come in few numbers: those without a prompt have ended before they begin."""
    law = {"temperature": 1.0, "max_new_bytes": 5}
    known, seen = compiled(), []
    for count in (3, 4, 5, 6, 7, 8):
        out = bytelax.generate(byte_lm(), [b"a", *[b"bc"] * (count - 1)], **law)
        assert [len(each) for each in out.bytes] == [5] * count
        assert out.stats.bytes == out.stats.rounds == 5 * count
        seen.append(compiled() - known)
    assert seen == [2, 2, 4, 4, 4, 4]  # one program to start, one to go on


def test_numbers_of_rows():
    rows = Engine.of(byte_lm()).rows
    assert [rows(n) for n in (1, 2, 3, 5, 8, 9, 16, 17, 63)] == [1, 2, 4, 8, 8, 16, 16, 24, 64]


@pytest.mark.slow
def test_refills_compile_nothing():
    model = byte_lm()
    request = {"batch": 2, "max_new_bytes": 6}
    list(bytelax.generate_many(model, [b"a", b"b", b"c"], **request))
    known = compiled()
    list(bytelax.generate_many(model, [b"defg" * i for i in range(1, 8)], **request))
    assert compiled() == known


# Statistics


KEYS = set(
    "bytes rounds drafted accepted acceptance accepted_by_position acceptance_by_position "
    "bytes_per_round bytes_per_patch decoder_passes encoder_passes global_passes patcher_passes "
    "draft_encoder_passes bandwidth_gb bandwidth_gb_with_patcher seconds compile_seconds "
    "bytes_per_second".split()
)


def weights(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return sum(math.prod(x.shape) for path, x in leaves if "embedding" not in str(path))


@pytest.mark.slow  # passes are counted: decode/test_targets.py
def test_statistics_of_plain_decoding():
    out, model = greedy(blt, None), blt()
    figures = out.stats.to_dict()
    assert set(figures) >= KEYS
    assert figures["bytes"] == figures["rounds"] == 3 * NEW
    assert figures["seconds"] > 0 and figures["bytes_per_second"] == 3 * NEW / figures["seconds"]
    assert figures["acceptance"] is None and figures["accepted_by_position"] == []
    part = {name: weights(model.params[name]) for name in model.params}
    for prompt, result in zip(PROMPTS, out.results, strict=True):
        row = result.stats.to_dict()
        for name in ("decoder_passes", "encoder_passes", "patcher_passes", "rounds", "bytes"):
            assert row[name] == NEW
        text = vocab.encode(prompt + result.bytes)
        ends = np.cumsum(model.patch_lengths(np.array(text[:-1])))[:-1] - 1
        closed = int((ends >= len(text) - NEW - 1).sum())
        assert row["patches"] == row["global_passes"] == closed > 0
        assert row["bytes_per_patch"] == NEW / closed
        assert row["drafted"] == row["accepted"] == row["draft_encoder_passes"] == 0
        read = NEW * part["decoder"] + closed * (part["encoder"] + part["global_transformer"])
        assert row["bandwidth_gb"] == pytest.approx(2 * read / 1e9)
        read += NEW * part["patcher"]
        assert row["bandwidth_gb_with_patcher"] == pytest.approx(2 * read / 1e9)


@pytest.mark.slow
def test_statistics_of_padded_windows():
    out, plain = greedy(blt, 8), greedy(blt, None)
    assert out.bytes == plain.bytes
    assert out.stats.bytes == out.stats.rounds == out.stats.decoder_passes == 3 * NEW
    assert out.stats.drafted == 0 and len(out.stats.accepted_by_position) == 7
    assert out.stats.patches == plain.stats.patches
    figures = out.stats.to_dict()
    assert figures["accepted_by_position"] == [0] * 7
    assert figures["acceptance_by_position"] == [None] * 7


def test_statistics_without_patches():
    row = greedy(byte_lm, None).results[0].stats.to_dict()
    assert row["decoder_passes"] == NEW
    assert row["global_passes"] == row["encoder_passes"] == row["patches"] == 0
    assert row["bytes_per_patch"] is None
    assert row["bandwidth_gb"] == pytest.approx(2 * NEW * weights(byte_lm().params) / 1e9)


def test_the_longest_text_fits():
    whole = chain(b"abcdef")
    module = type(whole.module)(models.replace(whole.config, max_bytes=64))
    model = models.Model(module, whole.params)
    (result,) = bytelax.generate(model, [b"a" * 43], max_new_bytes=20, allow_eos=False).results
    assert len(result.bytes) == 20
    with pytest.raises(ValueError, match="context of 63 bytes"):
        bytelax.generate(model, [b"a" * 44], max_new_bytes=20)
    # In a queue too, where the buffers in use would hold it; what runs beside comes out first.
    queue = bytelax.generate_many(model, [b"a", b"a" * 44], batch=2, max_new_bytes=20)
    assert next(queue).index == 0
    with pytest.raises(ValueError, match="context of 63 bytes"):
        next(queue)
