"""`bytelax bench`: what it prints and refuses."""

import json

import pytest

from bytelax import cli


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
        "lookup:draft_length=3,verify=block", "early-exit:exit_layer=1", "--batch", "2",
        "--max-new-bytes", "8", "--repeats", "2", "--json",
    )  # fmt: skip
    assert code == 0
    told = json.loads(out)
    assert told["batch"] == 2
    lookup, exit_ = told["rows"]
    assert (lookup["method"], lookup["draft_length"], lookup["verify"]) == ("lookup", 3, "block")
    assert exit_["exit_layer"] == 1 and exit_["lossless"]
    for row in told["rows"]:
        low, high = row["decode_speed_range"]
        assert 0 < low <= row["decode_speed"] <= high
        assert row["rounds"] * row["bytes_per_round"] == pytest.approx(8)
        assert row["decode_bytes_per_second"] > row["bytes_per_second"] > 0


def test_the_table(bench):
    code, out, _ = bench("ar", "--max-new-bytes", "4", "--repeats", "1")
    assert code == 0 and "1.00" in out and "Batch 1" in out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["nope"], "unknown method 'nope'"),
        (["lookup:draft_length"], "option=value"),
        (["lookup:latent=reuse"], "takes no 'latent'"),
        (["ar", "--repeats", "0"], "repeats must be at least 1"),
        (["ar", "--file", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_input_is_one_line(bench, flags, says):
    code, out, err = bench(*flags)
    assert code == 2 and not out and len(err.splitlines()) == 1 and says in err
