"""Studies with several files of results, run through with rows that were measured before."""

import json
import pathlib

import pytest

from experiments.speed.blt_methods import run as blt_methods
from experiments.speed.self_drafting import run as self_drafting
from experiments.training.joint_tax import run as joint_tax

SPEED = pathlib.Path(blt_methods.__file__).parents[1]


@pytest.fixture
def called(monkeypatch, tmp_path):
    """Runs a study's `main` on no data and no models; returns its directory of results."""

    def call(study, *flags):
        monkeypatch.setattr(study, "load", lambda *args, **kwargs: None)
        monkeypatch.setattr("sys.argv", ["run.py", "--results", str(tmp_path), *flags])
        study.main()
        return tmp_path

    monkeypatch.setattr("experiments.harness.side_by_side.prompts", lambda *args: [b"text"] * 4)
    return call


def kept(name):
    """The figures of one row by one, without what they were measured for."""
    rows = json.loads((SPEED / f"{name}.json").read_text())["rows"]
    return [{key: row[key] for key in row if key not in ("setting", "load")} for row in rows]


def rows(path):
    report = json.loads(path.read_text())
    assert report["complete"]
    return report, [row["setting"] for row in report["rows"]]


def test_the_methods_of_fast_blt_greedy_and_sampled(called, monkeypatch):
    (figures, *_) = kept("blt_methods/results")
    monkeypatch.setattr(blt_methods.side_by_side, "measure", lambda *args, **how: figures)
    out = called(blt_methods)
    greedy, settings = rows(out / "results.json")
    assert greedy["temperature"] == 0 and len(settings) == len(blt_methods.SETTINGS)
    sampled, settings = rows(out / "sampled.json")
    assert sampled["temperature"] == 1
    assert {setting["method"] for setting in settings} == {"ar", "blt-s", "blt-dv"}
    assert "temperature 0.0" in (out / "README.md").read_text()
    assert "temperature 1.0" in (out / "sampled.md").read_text()


def test_self_drafting_beside_what_windows_cost(called, monkeypatch):
    (figures, *_), (window, *_) = kept("self_drafting/results"), kept("self_drafting/windows")
    monkeypatch.setattr(self_drafting, "windows", lambda *args: window)
    monkeypatch.setattr(self_drafting, "measured", lambda *args, **how: figures)
    monkeypatch.setattr(self_drafting, "published_shape", lambda: None)
    out = called(self_drafting)
    report, _ = rows(out / "results.json")
    assert list(self_drafting.headline(report))
    report, settings = rows(out / "windows.json")
    assert settings == [{"model": "tiny-lm"}, {"model": "85M"}]
    assert not list(self_drafting.headline(report))


def test_the_table_of_the_joint_tax(called, monkeypatch):
    trained = []
    monkeypatch.setattr(joint_tax, "train", lambda name, out, options: trained.append(out.name))
    monkeypatch.setattr(joint_tax.teacher_forced, "held_out", lambda *args, **how: [None])
    figures = iter([{"bits_per_byte": 2.5}, *[{"bits_per_byte": 3, "block 4 anywhere": 0.25}] * 6])
    monkeypatch.setattr(joint_tax, "measure", lambda *args: next(figures))
    table = (called(joint_tax) / "README.md").read_text()
    assert trained[-1] == "mixed-sizes-mid-patch" and len(trained) == len(joint_tax.MODELS)
    assert "| BLT | 2.500 |  |" in table and "| BLT-D-16, mean | 3.000 | 0.250 |" in table
