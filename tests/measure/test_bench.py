"""`bytelax bench`: what it prints and refuses."""

import json

import pytest

from bytelax import cli
from bytelax.commands.bench import parsed


@pytest.fixture
def bench(model, tmp_path, capsys):
    prompt = tmp_path / "prompt.txt"
    prompt.write_bytes(b"again and again and ")

    def run(*flags):
        code = cli.main(["bench", "--model", model, "--file", str(prompt), *flags])
        return code, *capsys.readouterr()

    return run


def test_figures_of_a_batch(bench):
    code, out, _ = bench(
        "lookup:draft_length=3,window=5", "early-exit:exit_layer=1", "--batch", "2",
        "--max-new-bytes", "8", "--repeats", "2", "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    assert told["batch"] == 2
    lookup, exit_ = told["rows"]
    assert (lookup["method"], lookup["draft_length"], lookup["window"]) == ("lookup", 3, 5)
    assert exit_["exit_layer"] == 1 and exit_["lossless"]
    for row in told["rows"]:
        low, high = row["decode_speed_range"]
        assert 0 < low <= row["decode_speed"] <= high
        assert row["rounds"] * row["bytes_per_round"] == pytest.approx(8)
        assert row["decode_bytes_per_second"] > row["bytes_per_second"] > 0


def test_the_table(bench):
    code, out, _ = bench("ar", "--max-new-bytes", "4", "--repeats", "1")
    assert code == 0 and "1.00" in out and "Batch 1, prompts of 20 bytes, 4 new ones" in out


def test_every_batch_is_full(bench, tmp_path):
    for name in ("second.txt", "third.txt"):
        (tmp_path / name).write_bytes(b"again and again")
    more = [
        flag for name in ("second", "third") for flag in ("--file", str(tmp_path / f"{name}.txt"))
    ]
    flags = ("ar", "--batch", "2", "--max-new-bytes", "4", "--repeats", "1", "--json")
    told = json.loads(bench(*flags, *more)[1])
    assert told["prompt_bytes"] == [20, 15, 15, 20]
    assert told["rows"][0]["rounds"] == 4  # a prompt, of each of the four


def test_by_default_it_fits_the_context(bench):
    code, out, _ = bench("ar", "--override", "max_bytes=32", "--repeats", "1", "--json")
    assert code == 0 and json.loads(out)["max_new_bytes"] == 32 - 1 - 20


def test_options_with_commas():
    tree = parsed("medusa:branches=(3,2),nodes=4")
    assert tree == ("medusa", {"branches": (3, 2), "nodes": 4})


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["nope"], "unknown method 'nope'"),
        (["lookup:draft_length"], "option=value"),
        (["lookup:latent=reuse"], "takes no 'latent'"),
        (["lookup:draft_length=x"], "bytelax: draft_length is a whole number below 2**31, got 'x'"),
        (["ar", "blt-s"], "needs a Byte Latent Transformer"),
        (["ar", "--temperature", "-1"], "temperature must be"),
        (["ar", "--repeats", "0"], "repeats must be at least 1"),
        (["ar", "--draft-quantize", "int8"], "and none is named"),
        (["draft-model:draft_model=[1]"], "draft_model is a model or names one"),
        (["ar", "--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_input_is_one_line(bench, flags, says):
    code, out, err = bench(*flags)
    assert code == 2 and not out and len(err.splitlines()) == 1 and says in err
