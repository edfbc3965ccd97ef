"""How a study is run through."""

import importlib.util
import json
import pathlib

import pytest

import experiments
from experiments.harness.discovery import Study


@pytest.fixture
def smoke(data, tmp_path, monkeypatch):
    """Runs a study on `data` and draws it, then again with nothing left to measure.

    `files` are those that it writes, by default all that the study has. Returns the main report and
    its page.
    """

    def run(name, *flags, files=None):
        study = Study(name, pathlib.Path(experiments.__file__).parent / name)
        command = ["run.py", "--data", data, "--results", str(tmp_path), "--smoke", *flags]
        monkeypatch.setattr("sys.argv", command)
        study.module().main()
        paths = [tmp_path / f"{each}.json" for each in files or study.results]
        written = [path.read_text() for path in paths]
        monkeypatch.setattr(study.module(), "measure", None, raising=False)
        study.module().main()
        assert [path.read_text() for path in paths] == written
        for text, path in zip(written, paths, strict=True):
            report = json.loads(text)
            assert report["complete"]
            study.headline(report)
            if importlib.util.find_spec("matplotlib"):
                study.draw(report, path.with_suffix(".svg"))
        return json.loads(written[0]), (tmp_path / "README.md").read_text()

    return run
