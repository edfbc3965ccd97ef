"""The command that times everything on a processor."""

import importlib
import sys
import types

import pytest

from experiments import study, timed


@pytest.fixture
def ran(monkeypatch):
    """The commands that run; `vs_peers` fails."""
    commands = []

    def run(command):
        commands.append(command)
        return types.SimpleNamespace(returncode=int(command[2].endswith("vs_peers")))

    monkeypatch.setattr(timed.subprocess, "run", run)
    return commands


def test_each_study_runs_and_what_fails_is_named(ran, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(study, "commit", lambda *paths: "1234567")
    assert timed.main(["--data", str(tmp_path)]) == 1
    modules = [f"experiments.studies.{name}" for name in timed.STUDIES]
    assert ran == [[sys.executable, "-m", name, "--data", str(tmp_path)] for name in modules]
    assert "vs_peers: exit status 1" in capsys.readouterr().out
    assert all(importlib.import_module(name).COLUMNS for name in modules)


def test_rows_name_a_commit(ran, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(study, "commit", lambda *paths: "1234567+")
    with pytest.raises(SystemExit) as stopped:
        timed.main(["--data", str(tmp_path)])
    assert stopped.value.code == 2 and capsys.readouterr().err.count("\n") == 1 and not ran
    trial = ["--smoke", "--results", str(tmp_path)]
    assert timed.main(["--data", str(tmp_path), *trial]) == 1
    assert ran[0][-3:] == trial
