"""The studies of scores run through: a few bytes of everything, on texts made up here."""

import pathlib

import pytest
import score_data

import bytelax
from experiments.quality.diversity.run import type_token_ratio
from experiments.quality.fast_blt import run as fast_blt
from experiments.quality.rule_tasks import run as rule_tasks
from experiments.training.rule_tasks import write


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    return str(root)


def test_every_printed_row_has_a_setting():
    assert len(fast_blt.SETTINGS) == 28
    assert fast_blt.printed({"method": "blt-s", "draft_length": 8}) == ("BLT", "BLT-S", "k=8")
    bounded = {"method": "blt-d", "block_size": 4, "unmask": "entropy", "gamma": 0.8}
    assert fast_blt.printed(bounded) == ("B=4", "BLT-D", "g=0.8")
    assert {"method": "blt-dv", "block_size": 16, "unmask": "one-step"} in fast_blt.SETTINGS
    assert all(setting in fast_blt.SETTINGS for setting in fast_blt.WRITE_CODE)


def test_same_beginning():
    assert fast_blt.same_beginning(b"abcd", b"abxd") == 0.5
    assert fast_blt.same_beginning(b"abcd", b"abcd") == 1


def test_type_token_ratio():
    assert type_token_ratio(b"a rose is a  rose\nis") == 0.5
    assert type_token_ratio(b" \n") == 0


@pytest.mark.slow
def test_fast_blt(smoke):
    pytest.importorskip("sacrebleu")
    report, table = smoke(
        "quality/fast_blt", "--examples", "1", "--new", "8", "--shots", "1",
        "--tasks", "tatoeba-deu-eng", "humaneval",
    )  # fmt: skip
    plain, drafted = (row["tasks"] for row in report["rows"])
    assert plain.keys() == {"tatoeba-deu-eng", "humaneval"}
    assert drafted.keys() == {"tatoeba-deu-eng"}
    own = drafted["tatoeba-deu-eng"]
    assert own["same_texts"] == own["same_beginning"] == 1
    assert own["bits_per_byte"] == pytest.approx(plain["tatoeba-deu-eng"]["bits_per_byte"])
    assert own["decoder_passes"] >= 8 and own["acceptance"] is not None
    assert own["bandwidth_gb_with_patcher"] > own["bandwidth_gb"] > 0
    line = next(line for line in table.splitlines() if line.startswith("| blt-s | k=4 |"))
    assert "31.46 | 95.1 | 15.64" in line  # 1B, German, as printed


@pytest.mark.slow
def test_likelihood(smoke):
    report, table = smoke("quality/likelihood", "--limit", "2")
    (row,) = report["rows"]
    assert row["accuracy"]["value"] == 0.5 and row["chance"] == 0.5
    assert "Not there: arc-easy" in table and "79.38" in table


@pytest.mark.slow
def test_diversity(smoke):
    report, table = smoke("quality/diversity", "--samples", "2", "--new", "16")
    (row,) = report["rows"]
    assert 0 <= row["type_token_ratio"] <= 1 and 2 <= row["decoder_passes"] <= 18
    assert "| blt-d | 0.5 | 0.8 |" in table and row["bits_per_byte"]["value"] > 0


@pytest.mark.slow
def test_draft_models(smoke):
    report, table = smoke("speed/draft_models")
    (row,) = report["rows"]
    assert 0 < row["parameters"] < report["parameters"] and row["T=1"]["lossless"]
    assert "| 32 x 1 |" in table


@pytest.mark.slow
def test_acceptance(smoke):
    report, table = smoke("quality/acceptance", "--prompts", "5", "--context", "64", "--new", "8")
    kinds = report["rows"][0]["kinds"]
    assert set(kinds) == {"seen", "held out", "held out, second set", "other source"}
    assert len(kinds["held out"]["acceptance_by_genre"]) == 5
    for figures in kinds.values():
        low, high = figures["acceptance"]["interval"]
        assert 0 <= low <= figures["acceptance"]["value"] <= high <= 1
        assert len(figures["kept_once_reached_by_position"]) == 8
    assert "A trial run" in table and "| `tiny` | blt-s draft_length 8 | 0 |" in table


@pytest.mark.slow
def test_draft_losses(smoke):
    report, table = smoke("training/draft_losses")
    (row,) = report["rows"]
    assert len(row["overlap"]) == len(row["agreed"]) == 8
    assert "A trial run" in table and "| LK, the model's own text |" in table


@pytest.mark.slow
def test_rule_tasks(smoke, tmp_path):
    """With a bundled model, which answers nothing right."""
    write.write(tmp_path / "tasks", train=100, test=2)
    (tmp_path / "runs").mkdir()
    assets = pathlib.Path(bytelax.__file__).parent / "assets"
    (tmp_path / "runs" / "task").symlink_to(assets / "tiny")
    flags = ("--tasks", str(tmp_path / "tasks"), "--runs", str(tmp_path / "runs"))
    report, table = smoke("quality/rule_tasks", *flags)
    plain, drafted = report["rows"]
    assert plain["exact_match"]["value"] == drafted["exact_match"]["value"]
    assert drafted["rounds"] < plain["rounds"] == pytest.approx(plain["bytes"], abs=1)
    assert "| task | blt-s, draft_length 4 |" in table


def test_every_unmasking_rule_is_asked_of_every_block_size():
    """And a few of a model that learned all sizes."""
    made = rule_tasks.settings()
    assert len(made) == (1 + 3) + 4 * (1 + 5 + 1) + (1 + 3 * (3 + 1))
    assert len({rule_tasks.named(each) + each["model"] for each in made}) == len(made)
