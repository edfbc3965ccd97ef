"""The studies of scores run through: a few bytes of everything, on texts made up here."""

import pathlib

import pytest

import bytelax
from experiments.quality.diversity.run import type_token_ratio
from experiments.quality.rule_tasks import run as rule_tasks
from experiments.training.rule_tasks import write
from tests.helpers import score_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    score_data.write(root)
    return str(root)


def test_type_token_ratio():
    assert type_token_ratio(b"a rose is a  rose\nis") == 0.5
    assert type_token_ratio(b" \n") == 0


@pytest.mark.slow
def test_lm_eval(smoke, monkeypatch):
    pytest.importorskip("lm_eval")
    monkeypatch.setenv("DISABLE_MULTIPROC", "1")  # put back what the study sets
    report, table = smoke("quality/lm_eval")
    likelihood, generated = report["rows"]
    assert likelihood["examples"] == 2 and likelihood["acc"]["value"] == 1.0
    assert generated["rounds"] < generated["bytes"] <= 96
    assert "| `tiny-lm` | 2 |" in table and "| `tiny` | `blt-s` |" in table


@pytest.mark.exhaustive
@pytest.mark.slow
def test_diversity(smoke):
    report, table = smoke("quality/diversity", "--samples", "2", "--new", "16")
    (row,) = report["rows"]
    assert 0 <= row["type_token_ratio"] <= 1 and 2 <= row["decoder_passes"] <= 18
    assert "| blt-d | 0.5 | 0.8 |" in table and row["bits_per_byte"]["value"] > 0


@pytest.mark.exhaustive
@pytest.mark.slow
def test_acceptance(smoke):
    report, table = smoke("quality/acceptance", "--prompts", "5", "--context", "64", "--new", "8")
    kinds = report["rows"][0]["kinds"]
    assert set(kinds) == {"seen", "held out", "held out, test files", "other source"}
    assert len(kinds["held out"]["acceptance_by_genre"]) == 5
    for figures in kinds.values():
        low, high = figures["acceptance"]["interval"]
        assert 0 <= low <= figures["acceptance"]["value"] <= high <= 1
        assert len(figures["kept_once_reached_by_position"]) == 8
    assert "A trial run" in table and "| `tiny` | blt-s draft_length 8 | 0 |" in table


@pytest.mark.exhaustive
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
