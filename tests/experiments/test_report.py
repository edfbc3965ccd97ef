"""The report: it runs what is missing, and shows what is there."""

import json

import pytest

pytest.importorskip("matplotlib")

import headline
import report
import report_page
import study
from report import Study

METHOD = {
    "acceptance": 0.5, "bytes_per_round": 2.5, "bytes_per_patch": 2.0, "lossless": True,
    "decode_bytes_per_second": 100.0, "decode_speed": 1.25, "decode_speed_range": [1.125, 1.5],
}  # fmt: skip


def batch_report():
    plain = METHOD | {"decode_speed": 1.0, "decode_speed_range": [1.0, 1.0]}
    rows = [
        {
            "setting": {"model": "tiny", "batch": batch},
            "best_plain": best,
            "methods": dict.fromkeys({"plain": 0, best: 0}, plain) | {"blt-s 8": METHOD},
        }
        for batch, best in ((1, "plain"), (8, "plain, all wait"))
    ]
    return {
        "complete": True, "context": 128, "temperature": 0.0, "repeats": 5, "machine": "a machine",
        "rows": rows,
    }  # fmt: skip


def test_one_report_of_what_is_there(tmp_path):
    (tmp_path / "batch.json").write_text(json.dumps(batch_report()))
    (tmp_path / "batch.md").write_text(
        "# Methods in batches\n\n## `tiny`\n\n| a | b |\n|---|---|\n"
    )
    (tmp_path / "kernels.md").write_text("No title, | no table\n")
    report_page.build(tmp_path, ["blt_methods", "batch"])
    text = (tmp_path / "report.md").read_text()
    _, line = (line for line in text.splitlines() if line.startswith("| tiny | blt-s 8"))
    for told in ("1.25", "1.12 to 1.50 (5 runs)", "plain, all wait", "128", "2.00", "a machine"):
        assert told in line
    assert "## Methods in batches\n" in text and "### `tiny`" in text
    assert "## kernels\n\nNo title" in text
    assert "Not measured yet\n\nblt_methods\n" in text
    page = (tmp_path / "report.html").read_text()
    assert "<td>1.25</td>" in page and 'src="data:image/svg+xml;base64,' in page
    report_page.build(tmp_path, ["blt_methods", "batch"])
    assert (tmp_path / "report.md").read_text() == text  # it does not take itself in


def test_a_lossy_method_stands_with_the_patches_of_its_own_text():
    plain = METHOD | {"setting": {"method": "ar"}}
    lossy = METHOD | {"setting": {"method": "blt-d"}, "lossless": False, "bytes_per_patch": 6.5}
    conditions = {"model": "tiny", "prompt_bytes": 128, "temperature": 0.0, "repeats": 5}
    reports = {"blt_methods": conditions | {"machine": "a machine", "rows": [plain, lossy]}}
    (line,) = (line for line in headline.lines(reports) if "blt-d" in line)
    assert "| no | 1.25 |" in line and "| 6.50 |" in line


def test_a_study_that_has_only_begun_shows_no_older_table(tmp_path):
    (tmp_path / "batch.json").write_text(json.dumps(batch_report() | {"complete": False}))
    (tmp_path / "batch.md").write_text("# Methods in batches\n")
    report_page.build(tmp_path, ["batch"])
    text = (tmp_path / "report.md").read_text()
    assert "Not measured yet\n\nbatch (2 rows so far)\n" in text
    assert "Methods in batches" not in text and "blt-s 8" not in text


def test_what_is_complete_is_not_run_again(tmp_path, monkeypatch, capsys):
    for name, done in (("batch", True), ("wall_clock", False)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"complete": done, "rows": []}))
    commands = []

    class Finished:
        returncode = 0

    def run(command, check):
        commands.append(command)
        finished = Finished()
        finished.returncode = int("sampled.py" in command[1])
        return finished

    monkeypatch.setattr(report.subprocess, "run", run)
    studies = [
        Study("batch", 25),
        Study("wall_clock", 15),
        Study("again", 5, ("--temperature", "1"), "sampled"),
    ]
    options = type("Options", (), {"results": tmp_path, "data": "texts", "smoke": True})
    assert report.run(studies, options) == ["again"]
    assert [command[1].rpartition("/")[2] for command in commands] == [
        "wall_clock.py",
        "sampled.py",
    ]
    assert all(c[2:4] == ["--results", str(tmp_path)] and c[-1] == "--smoke" for c in commands)
    assert commands[1][4:6] == ["--temperature", "1"]
    told = capsys.readouterr().out
    assert "[1/2] wall_clock: about 15 minutes; all together about 20 minutes left" in told


def test_a_smoke_run_keeps_out_of_the_results(monkeypatch, capsys):
    for options in (study.parser("A study."), study.parser("A study.", model=None)):
        assert options.parse_args(["--smoke", "--results", "elsewhere"]).smoke
        with pytest.raises(SystemExit):
            options.parse_args(["--smoke"])
        assert "--smoke needs --results" in capsys.readouterr().err
    monkeypatch.setattr("sys.argv", ["report.py", "--smoke", "--data", "texts"])
    with pytest.raises(SystemExit):
        report.main()
    assert "--smoke needs --results" in capsys.readouterr().err


def test_studies_that_do_not_exist(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["report.py", "--only", "nope", "--build"])
    with pytest.raises(SystemExit):
        report.main()
    assert "no such study: nope" in capsys.readouterr().err
