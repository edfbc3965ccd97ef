"""Studies with many settings or several files of results, run through with made-up rows."""

import json
import types

import pytest

from experiments.harness import bundled_data, evidence
from experiments.speed.blt_methods import run as blt_methods
from experiments.speed.self_drafting import run as self_drafting
from experiments.training.joint_tax import run as joint_tax

FIGURE = {"value": 2.0, "interval": [1.5, 2.5]}
COUNTED = (
    "bytes_per_round", "bytes_per_round_without_loops", "kept_per_round", "acceptance",
    "kept_per_round_without_loops", "decoder_passes_per_byte", "global_passes_per_byte",
    "gb_per_byte", "published_gb_per_byte",
)  # fmt: skip
FIGURES = dict.fromkeys(COUNTED, FIGURE) | {
    "loops": 1, "bytes_per_patch": 4.0, "decode_bytes_per_second": 100.0, "decode_speed": 1.25,
    "decode_speed_range": [1.0, 1.5], "same_outputs": 5, "lossless": True,
    "acceptance_by_position": [0.5], "kept_once_reached": 0.5,
}  # fmt: skip


@pytest.fixture
def called(monkeypatch, tmp_path):
    """Runs a study's `main` on no data and no models; returns its directory of results."""
    heads = types.SimpleNamespace(exits=(3, 6))
    config = types.SimpleNamespace(heads=heads, trunk=types.SimpleNamespace(layers=12))
    texts = dict.fromkeys(("prose", "code"), b"text\n" * 99)

    def call(study, *flags):
        model = types.SimpleNamespace(config=config)
        monkeypatch.setattr(study, "load", lambda *args, **kwargs: model)
        where = ["--data", str(tmp_path), "--results", str(tmp_path)]
        monkeypatch.setattr("sys.argv", ["run.py", *where, *flags])
        study.main()
        return tmp_path

    monkeypatch.setattr(bundled_data, "held_out", lambda *args, **how: texts)
    monkeypatch.setattr(evidence, "decoded", lambda *args, **how: [])
    return call


def rows(path):
    report = json.loads(path.read_text())
    assert report["complete"]
    return report, [row["setting"] for row in report["rows"]]


def test_the_methods_of_fast_blt_greedy_and_sampled(called, monkeypatch):
    monkeypatch.setattr(blt_methods, "measure", lambda *args: FIGURES)
    out = called(blt_methods)
    report, settings = rows(out / "results.json")
    assert report["prompts"] == evidence.PROMPTS
    assert len(settings) == 2 * len(blt_methods.SETTINGS)
    diffusion = {each["model"] for each in settings if each["method"].startswith("blt-d")}
    assert diffusion == {"tiny-d"}
    page = (out / "README.md").read_text()
    assert "## Temperature 0\n" in page and "## Temperature 1\n" in page
    assert "trial run" not in page and "| `tiny` | blt-s | draft_length 16 | 2.00 (1.50" in page
    assert list(blt_methods.headline(report))


def test_self_drafting_beside_what_windows_cost(called, monkeypatch):
    widths = {str(width): 1.0 + width for width in (1, 2, 4, 8, 16, 32)}
    passes = {"whole": widths, "from the exit": widths, "no cache": 3.0}
    monkeypatch.setattr(self_drafting.windows, "seconds", lambda *args: {"seconds": passes})
    monkeypatch.setattr(self_drafting.windows, "published_shape", lambda: None)
    monkeypatch.setattr(self_drafting, "measure", lambda *args, **how: FIGURES)
    out = called(self_drafting)
    report, settings = rows(out / "results.json")
    assert list(self_drafting.headline(report))
    swept = [each for each in settings if each["method"] == "early-exit"]
    assert {each["exit_layer"] for each in swept} == {3, 6}  # those that have a head
    sampled = [each["drafts"] for each in settings if each["method"] == "spectr"]
    assert sampled == [2, 4, 8]
    assert "**The falsifier fires**" in (out / "README.md").read_text()
    report, settings = rows(out / "windows.json")
    assert settings == [{"model": "tiny-lm"}, {"model": "85M"}]
    assert not list(self_drafting.headline(report))


def test_the_verdict_on_the_draft_layer():
    def verdict(*intervals):
        return self_drafting.published.verdict([{"interval": each} for each in intervals])

    assert "**The falsifier fires**" in verdict([3.0, 5.9], [4.0, 5.0])
    assert "does not fire" in verdict([3.0, 5.9], [6.0, 7.0])
    assert "undecided" in verdict([3.0, 5.9], [5.5, 6.5])


def test_the_published_projections_of_early_exit():
    (low, high) = self_drafting.published.projections(12)[-2:]
    assert low == "| 42 % | 1.27x | 1.27x | 0.95x | 1 |"
    assert high == "| 85 % | 1.74x | 1.74x | 1.29x | 2 |"


def test_the_table_of_the_joint_tax(called, monkeypatch):
    trained = []
    monkeypatch.setattr(joint_tax, "train", lambda name, out, options: trained.append(out.name))
    monkeypatch.setattr(joint_tax.teacher_forced, "held_out", lambda *args, **how: [None])
    figures = iter([{"bits_per_byte": 2.5}, *[{"bits_per_byte": 3, "block 4 anywhere": 0.25}] * 6])
    monkeypatch.setattr(joint_tax, "measure", lambda *args: next(figures))
    table = (called(joint_tax) / "README.md").read_text()
    assert trained[-1] == "mixed-sizes-mid-patch" and len(trained) == len(joint_tax.MODELS)
    assert "| BLT | 2.500 |  |" in table and "| BLT-D-16, mean | 3.000 | 0.250 |" in table
