"""What options may say, and what is promised where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bytelax
from bytelax import cli
from bytelax.model import Model
from bytelax.options import HeadsConfig, TwoByteHead
from tests.helpers import models_for_tests as models

PROMPTS = [b"the cat", b"\x00", b"a"]


@pytest.fixture(scope="module")
def narrow():
    """A byte transformer in bfloat16, with a two-byte head behind its first layer."""
    model = models.model(
        models.replace(models.BYTE_LM, heads=HeadsConfig(two_byte=TwoByteHead(depths=(1,))))
    )
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), model.params)
    return Model(model.module, params)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["early-exit", "composed"])
def test_exits_in_bfloat16_are_plain_decoding_bit_for_bit(narrow, method):
    """By default they handed their states over, and wrote other bytes in a quarter of all texts."""
    run = {"max_new_bytes": 60, "logprobs": True}
    plain = bytelax.generate(narrow, PROMPTS, window=5, **run)
    out = bytelax.generate(narrow, PROMPTS, method=method, exit_layer=1, **run)
    assert out.lossless and out.bytes == plain.bytes and out.stats.accepted > 0
    for a, b in zip(out.results, plain.results, strict=True):
        np.testing.assert_array_equal(a.log_probs, b.log_probs)
    with pytest.raises(ValueError, match="verify_from 'exit' needs float32 weights"):
        bytelax.generate(narrow, PROMPTS, method=method, verify_from="exit", **run)


@pytest.fixture(scope="module")
def small():
    return models.model(models.BYTE_LM)


def test_a_bad_prompt_waits_for_the_rows_before_it(small):
    long = bytes(small.config.max_bytes)
    found = bytelax.generate_many(small, [b"a", long, b"c"], batch=2, max_new_bytes=4)
    assert next(found).index == 0
    with pytest.raises(ValueError, match="prompt"):
        next(found)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (
            {"method": "lookup", "draft_length": 1.5},
            "draft_length is a whole number below 2.*, got 1.5",
        ),
        ({"method": "lookup", "draft_length": {10**10: 4, 1: 2}}, "draft_length is a whole"),
        (
            {"method": "lookup", "draft_length": "4"},
            "draft_length is a whole number below 2.*, got '4'",
        ),
        (
            {"method": "lookup", "draft_length": True},
            "draft_length is a whole number below 2.*, got True",
        ),
        ({"method": "lookup", "draft_length": "9" * 5000}, r"length is .*, got '9+\.\.\.9+'"),
        ({"method": "eagle", "beam": 0}, "beam and nodes must be at least 1"),
        ({"method": "eagle", "beam": 10**9}, "beam at most 256; got 1000000000"),
        ({"method": "eagle", "beam": 2, "nodes": 0}, "beam and nodes must be at least 1"),
        ({"method": "medusa", "branches": (300,)}, "a node has 1..256 branches"),
        (
            {"method": "medusa", "branches": (2.5,)},
            r"branches is a list of whole numbers, got \(2.5,\)",
        ),
        ({"method": "eagle", "min_survival": "1"}, "min_survival is a number or None, got '1'"),
        ({"method": "draft-model", "draft_model": None}, "needs draft_model"),
        ({"method": "draft-model", "draft_model": 5}, "draft_model is a model or names one, got 5"),
    ],
)
def test_options_of_another_kind(small, request_, says):
    with pytest.raises(ValueError, match=says) as error:
        bytelax.generate(small, [b"a"], **request_)
    assert "\n" not in str(error.value)


def told(capsys, *arguments):
    assert cli.main(list(arguments)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.slow
def test_commands_tell_them_in_one_line(capsys):
    table = ["--method", "lookup", "--draft-length", "10000000000"]
    assert "draft_length is a whole" in told(capsys, "generate", "--model", "tiny-lm", "x", *table)
    line = told(capsys, "bench", "--model", "tiny-lm", "lookup:draft_length=1.5")
    assert "draft_length is a whole number below 2**31, got 1.5" in line
    for setting, says in {
        "ar:model=5": "takes no 'model'",
        "ar:method=5": "takes no 'method'",
        "lookup:draft_length=" + "-" * 99_999: "draft_length can",
    }.items():
        assert says in told(capsys, "bench", "--model", "tiny-lm", setting)
    assert "dtype ''" in told(capsys, "generate", "--model", "tiny-lm", "x", "--dtype", "")
    wide = ["--override", "max_bytes=2000000000", "--max-new-bytes", "1900000000"]
    line = told(capsys, "generate", "--model", "tiny-lm", "x", *wide)
    assert "max_bytes must lie in 2..16777216" in line


@pytest.mark.slow
def test_a_stop_string_that_is_not_utf_8(capsys):
    flags = ["generate", "--model", "tiny-lm", "--max-new-bytes", "2", "--stop", "\udcff", "x"]
    assert cli.main(flags) == 0
