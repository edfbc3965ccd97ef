"""How a study is run through."""

import importlib.util
import json

import pytest


@pytest.fixture
def smoke(data, tmp_path, monkeypatch):
    """Runs a study on `data` and draws it, then again with nothing left to measure.

    Returns the report and the table.
    """

    def run(name, *flags):
        command = [f"{name}.py", "--data", data, "--results", str(tmp_path), "--smoke", *flags]
        monkeypatch.setattr("sys.argv", command)
        study = importlib.import_module(name)
        study.main()
        written = (tmp_path / f"{name}.json").read_text()
        monkeypatch.setattr(study, "measure", None)
        study.main()
        assert (tmp_path / f"{name}.json").read_text() == written
        report = json.loads(written)
        assert report["complete"]
        if importlib.util.find_spec("matplotlib"):
            importlib.import_module("figures").draw(name, report, tmp_path / f"{name}.svg")
        return report, (tmp_path / f"{name}.md").read_text()

    return run
