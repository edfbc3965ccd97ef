"""`experiments.study`: which rows are kept, and what a command line and a cell look like."""

import argparse
import json

import pytest

from experiments import study
from experiments.study import Column

TINY = "bytelax/assets/tiny/model.safetensors"


@pytest.fixture(autouse=True)
def commits(monkeypatch):
    """Commits of the library and of the weights of `tiny`, which a test may change."""
    now = {"bytelax": "1111111", TINY: "2222222"}
    monkeypatch.setattr(study, "commit", lambda *paths: now[paths[0]])
    return now


def run(folder, calls, settings=({"n": 1, "model": "tiny"},), **more):
    def measure(setting):
        calls.append(setting)
        return {"figure": len(calls)}

    options = argparse.Namespace(results=folder)
    study.run("some", options, list(settings), measure, **more)
    (path,) = folder.glob("some@*.json")
    return json.loads(path.read_text())


def test_run_measures_what_is_missing(tmp_path):
    calls = []
    first = run(tmp_path, calls, conditions={"new": 8})
    assert first["rows"][0]["setting"] == {"n": 1, "model": "tiny"} and first["commit"] == "1111111"
    again = run(
        tmp_path, calls, [{"n": 2, "model": "tiny"}, {"n": 1, "model": "tiny"}],
        conditions={"new": 8},
    )  # fmt: skip
    assert [row["figure"] for row in again["rows"]] == [2, 1] and len(calls) == 2


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("changed", ["conditions", "bytelax", TINY])
def test_run_measures_again_what_changed(tmp_path, commits, changed, timed):
    calls = []
    run(tmp_path, calls, conditions={"new": 8}, timed=timed)
    conditions = {"new": 8}
    if changed == "conditions":
        conditions["new"] = 9
    else:
        commits[changed] = "3333333"
    run(tmp_path, calls, conditions=conditions, timed=timed)
    assert len(calls) == (1 if changed == "bytelax" and not timed else 2)


def test_counted_rows_of_two_commits_name_both(tmp_path, commits):
    run(tmp_path, [], timed=False)
    commits["bytelax"] = "3333333"
    found = run(tmp_path, [], [{"n": 1, "model": "tiny"}, {"n": 2, "model": "tiny"}], timed=False)
    assert found["commit"] == "1111111, 3333333"


def test_run_writes_each_row_at_once(tmp_path):
    def measure(setting):
        if setting["n"] == 2:
            raise KeyboardInterrupt
        return [{"figure": 1}, {"figure": 2}]

    with pytest.raises(KeyboardInterrupt):
        options = argparse.Namespace(results=tmp_path)
        study.run("some", options, [{"n": 1}, {"n": 2}], measure)
    (path,) = tmp_path.glob("some@*.json")
    assert [row["figure"] for row in json.loads(path.read_text())["rows"]] == [1, 2]


def test_run_measures_again_what_failed(tmp_path):
    def measure(setting):
        return {"failed": "once"} if not list(tmp_path.glob("*")) else {"figure": 1}

    options = argparse.Namespace(results=tmp_path)
    for _ in range(2):
        rows = study.run("some", options, [{"n": 1}], measure)
    assert rows[0]["figure"] == 1 and "failed" not in rows[0] and len(rows) == 1


def test_command_is_the_last_that_asked_for_all_rows(tmp_path, monkeypatch):
    def command(*settings):
        monkeypatch.setattr("sys.argv", ["some", "--rows", str(len(settings))])
        return run(tmp_path, [], [{"n": n} for n in settings])["command"][-8:]

    assert command(1, 2) == "--rows 2"
    assert command(1, 2, 3) == "--rows 3"  # it measured one of them
    assert command(1) == "--rows 3"
    assert command(4) == "--rows 3"


def test_run_keeps_rows_that_are_not_asked_for(tmp_path):
    run(tmp_path, [], [{"n": 1}, {"n": 2}])
    found = run(tmp_path, [], [{"n": 3}, {"n": 2}])
    assert [row["setting"]["n"] for row in found["rows"]] == [3, 2, 1]


ROW = {
    "setting": {"model": "tiny", "options": {"draft_length": 8, "latent": "refresh"}},
    "speed": {"value": 1.234, "interval": [1.1, 1.31]}, "places": [0.5, 0.25], "same": True,
    "bleu": {"de": {"value": 0.5, "interval": [0.4, 0.6]}},
}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "form", "cell"),
    [
        ("model", "", "tiny"),
        ("options", "", "draft_length 8, latent refresh"),
        ("options.draft_length", "", "8"),
        ("speed", ".2f", "1.23 (1.10 to 1.31)"),
        ("speed.value", ".1f", "1.2"),
        ("bleu.de", ".0%", "50% (40% to 60%)"),
        ("places", ".0%", "50%, 25%"),
        ("same", "", "yes"),
        ("absent.value", ".2f", ""),
    ],
)
def test_column_cell(key, form, cell):
    assert Column("a title", key, form).cell(ROW) == cell


@pytest.mark.parametrize(
    ("given", "words"),
    [([], "--data"), (["--data", "/nowhere/at/all"], "there is no directory /nowhere/at/all")],
)
def test_parser_reports_missing_data_in_one_line(given, words, capsys):
    with pytest.raises(SystemExit) as ended:
        study.parser("A study.\n\n    python -m it --data DIR").parse_args(given)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and words in said and said.count("\n") == 1


def test_parser_keeps_trial_rows_apart(tmp_path, capsys):
    options = study.parser("A study.")
    assert options.parse_args(["--smoke", "--results", str(tmp_path)]).data is None
    with pytest.raises(SystemExit):
        options.parse_args(["--smoke"])
    assert "give another --results" in capsys.readouterr().err


def test_a_command_is_kept_without_ones_own_directories():
    flags = ["--data", "/home/me/texts", "--runs=my runs", "--new", "96", "--smoke"]
    kept = "python -m experiments.studies.some --data DIR --runs RUNS --new 96 --smoke"
    assert study.command("some", flags) == kept
    assert study.command("some", []) == "python -m experiments.studies.some"
