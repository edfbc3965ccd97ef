"""The command that times everything on a processor."""

import importlib
import types

import pytest

from experiments import study, timed


def test_each_study_runs_and_what_fails_is_named(monkeypatch, capsys, tmp_path):
    ran = []

    def run(command):
        ran.append(command[2].removeprefix("experiments.studies."))
        return types.SimpleNamespace(returncode=int(ran[-1] == "vs_peers"))

    monkeypatch.setattr(timed.subprocess, "run", run)
    monkeypatch.setattr(study, "commit", lambda *paths: "1234567")
    assert timed.main(["--data", str(tmp_path)]) == 1
    assert ran == [*timed.STUDIES]
    assert "vs_peers: exit status 1" in capsys.readouterr().out
    for name in ran:
        assert importlib.import_module(f"experiments.studies.{name}").COLUMNS


def test_rows_name_a_commit(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(study, "commit", lambda *paths: "1234567+")
    with pytest.raises(SystemExit) as stopped:
        timed.main(["--data", str(tmp_path)])
    assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1
