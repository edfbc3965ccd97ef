"""The studies of scores run through: a few bytes of everything, on texts made up here."""

import pathlib

import pytest

import bytelax
from experiments.harness import trained
from experiments.quality.diversity.run import type_token_ratio
from experiments.quality.rule_tasks import run as rule_tasks
from experiments.training.rule_tasks import train, write
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
    assert "| blt-d | 0.5 | 0.9 |" in table and row["bits_per_byte"]["value"] > 0


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
    write.write(tmp_path / "tasks", train=100, test=8)
    (tmp_path / "runs").mkdir()
    assets = pathlib.Path(bytelax.__file__).parent / "assets"
    (tmp_path / "runs" / "task").symlink_to(assets / "tiny")
    flags = ("--tasks", str(tmp_path / "tasks"), "--runs", str(tmp_path / "runs"))
    report, table = smoke("quality/rule_tasks", *flags)
    plain, drafted = report["rows"]
    assert plain["exact_match"]["value"] == drafted["exact_match"]["value"]
    assert drafted["rounds"] < plain["rounds"] == pytest.approx(plain["bytes"], abs=1)
    assert 0 <= plain["ranked_first"]["value"] <= 1 < plain["bits_per_byte"]["value"]
    assert "| the base | blt-s, draft_length 4 |" in table


def test_the_study_looks_for_the_runs_of_the_recipes():
    assert {rule_tasks.run_of(*each) for each in rule_tasks.TRAINED} == {"task", *train.CONTINUED}
    assert (rule_tasks.SEEDS, trained.BLOCK_SIZES) == (train.SEEDS, train.BLOCK_SIZES)


def test_every_unmasking_rule_is_asked_of_every_block_size():
    """Of the models that are there."""
    made = list(rule_tasks.settings(dict.fromkeys(("task", "task-more-2", "task-d-2"), "digest")))
    assert len(made) == (1 + 3) + 1 + (1 + 3 * (len(rule_tasks.RULES) + 1))
    assert len({rule_tasks.named(each) + each["model"] for each in made}) == len(made)
    assert {(each["model"], each["seed"]) for each in made} == {
        ("task", 0), ("task-more", 2), ("task-d", 2),
    }  # fmt: skip


def test_wrong_answers_look_like_the_right_one():
    read = {"task": "read", "answer": "4213"}
    assert rule_tasks.wrong(read, ["4213", "42", "9999", "4219", "4013", "17600"]) == [
        "4013", "4219", "9999",
    ]  # fmt: skip
    orders = rule_tasks.wrong({"task": "sort", "answer": "fig kiwi plum"}, [])
    assert orders == ["kiwi fig plum", "fig plum kiwi", "kiwi plum fig"]


def test_one_byte_per_pass_is_judged_beside_the_control():
    def row(model, right, seed=1, **how):
        setting = {"model": model, "seed": seed, "weights": "digest", **how}
        return {"setting": setting, "exact_match": {"value": right}}

    def verdicts(*seeds):
        rows = []
        for seed, (control, own) in enumerate(seeds, 1):
            rows += [
                row("task-more", control, seed, method="ar"),
                row("task-d", own, seed, method="blt-d", block_size=4, **trained.ONE_BYTE),
            ]
        return [line[-1] for line in rule_tasks.gate({"rows": rows})]

    assert verdicts((0.90, 0.88)) == ["in 1 of 3 seeds"]
    assert verdicts((0.90, 0.88), (0.90, 0.92), (0.90, 0.875)) == ["yes"]
    assert verdicts((0.90, 0.88), (0.90, 0.85)) == ["**no**"]
