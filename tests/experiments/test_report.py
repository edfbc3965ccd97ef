"""The report: it finds the studies, runs what is missing, and shows what is there."""

import json
import pathlib
import re
import textwrap

import pytest

pytest.importorskip("matplotlib")

import experiments
from experiments.harness import (
    discovery,
    facts,
    provenance,
    published_claims,
    report,
    report_page,
    speed_table,
    study,
)
from experiments.harness.discovery import Study

ROOT = pathlib.Path(experiments.__file__).parent
METHOD = {
    "acceptance": 0.5, "bytes_per_round": 2.5, "bytes_per_patch": 2.0, "lossless": True,
    "decode_bytes_per_second": 100.0, "decode_speed": 1.25, "decode_speed_range": [1.125, 1.5],
}  # fmt: skip


@pytest.fixture(scope="module")
def studies():
    """All studies by name."""
    return {each.name: each for each in discovery.studies()}


def write(folder, report, page):
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(report))
    (folder / "README.md").write_text(page)


def batch_report():
    plain = METHOD | {"decode_speed": 1.0, "decode_speed_range": [1.0, 1.0]}
    rows = [
        {
            "setting": {"model": "tiny", "temperature": 0.0, "batch": batch},
            "best_plain": best,
            "methods": dict.fromkeys({"plain": 0, best: 0}, plain) | {"blt-s 8": METHOD},
        }
        for batch, best in ((1, "plain"), (16, "plain, all wait"))
    ]
    return {
        "complete": True, "prompt_bytes": 128, "repeats": 5, "machine": "a machine", "rows": rows,
    }  # fmt: skip


def test_a_new_study_is_a_new_folder(tmp_path, monkeypatch):
    folder = tmp_path / "studies" / "novel" / "new"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text(
        textwrap.dedent("""
        MINUTES = 3

        def headline(report):
            yield ("a new row",)
        """)
    )
    (folder / "figure.py").write_text(
        textwrap.dedent("""
        from matplotlib import pyplot as plt

        def draw(report):
            return plt.figure()
        """)
    )
    monkeypatch.setattr(experiments, "__path__", [str(tmp_path / "studies")])
    (new,) = discovery.studies()
    assert (new.name, new.minutes, new.results) == ("novel/new", 3, ("results",))
    write(tmp_path / "out" / "novel" / "new", {"rows": [{}]}, "# Something new\n")
    report_page.build(tmp_path / "out", [new])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| a new row |" in text and "| [novel/new](novel/new/README.md) |" in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<h2>Something new</h2>" in page and 'alt="novel/new"' in page
    assert (tmp_path / "out" / "novel" / "new" / "figure.svg").exists()


def test_every_study_says_how_it_is_run(studies):
    assert len(studies) > 10
    for each in studies.values():
        assert callable(each.module().main), each.name
        assert f"{each.package}.run" in each.module().__doc__ or "make aot" in each.module().__doc__


def test_one_report_of_what_is_there(tmp_path, studies):
    page = "# Methods in batches\n\n## `tiny`\n\n| a | b |\n|---|---|\n"
    write(tmp_path / "speed" / "batch", batch_report(), page)
    write(tmp_path / "compile" / "kernels", {"programs": {}}, "No title, | no table\n")
    chosen = [studies[n] for n in ("speed/self_drafting", "speed/batch", "compile/kernels")]
    report_page.build(tmp_path, chosen)
    text = (tmp_path / "report.md").read_text()
    _, line = (line for line in text.splitlines() if line.startswith("| tiny | blt-s 8"))
    for told in ("1.25", "1.12 to 1.50 (5 runs)", "plain, all wait", "128", "2.00", "a machine"):
        assert told in line
    for begin, end in (
        ("| speed/self_drafting, windows |", "| not measured |"),
        ("| [speed/batch](speed/batch/README.md) |", "| older |"),
    ):
        assert any(x.startswith(begin) and x.endswith(end) for x in text.splitlines())
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Methods in batches</h2>" in page and "<h3><code>tiny</code></h3>" in page
    assert "<h2>compile/kernels</h2>\n<p>No title" in page
    assert "<td>1.25</td>" in page and 'src="data:image/svg+xml;base64,' in page
    report_page.build(tmp_path, chosen)
    assert (tmp_path / "report.md").read_text() == text  # it does not take itself in
    path = tmp_path / "speed" / "batch" / "results.json"
    path.write_text(json.dumps(batch_report() | {"ran": {"code": provenance.code()}}))
    report_page.build(tmp_path, chosen)
    assert "| older |" not in (tmp_path / "report.md").read_text()


def test_speeds_are_of_the_latest_machine(tmp_path, studies):
    folder = tmp_path / "speed" / "batch"
    write(folder, batch_report(), "Latest\n")
    other = batch_report() | {"machine": "another machine"}
    (folder / "results_on_another_machine.json").write_text(json.dumps(other))
    (folder / "results_on_another_machine.md").write_text("Other\n")
    report_page.build(tmp_path, [studies["speed/batch"]])
    speeds, listed = (tmp_path / "report.md").read_text().split("## Studies")
    assert "| a machine |" in speeds and "| another machine |" not in speeds
    assert "(speed/batch/results_on_another_machine.md)" in listed


def test_pages_and_the_report_tell_of_what_code_figures_are(studies):
    """A page of other code than its results, or than the report says, is caught."""
    text = (ROOT / "report.md").read_text()
    (built,) = re.findall(r"of code (\w+)\.", text)
    shown = 0
    for each in studies.values():
        for name in each.results:
            path = each.folder / f"{name}.json"
            found = json.loads(path.read_text()) if path.exists() else {}
            if "rows" not in found or not found.get("complete", True):
                continue
            page = study.page(path)
            codes = sorted({own["ran"]["code"] for own in provenance.each(found) if "ran" in own})
            told = re.findall(r"^Code (.*)\.$", page.read_text(), re.MULTILINE)
            if codes:
                assert [sorted(line.split(", ")) for line in told] == [codes], page
            else:
                assert not told and provenance.OLD in page.read_text(), page
            (line,) = (
                x
                for x in text.splitlines()
                if f"]({each.name}/{page.name}) | " in x and x.startswith("| [")
            )
            said = line.rpartition(" | ")[2].removesuffix(" |")
            assert said == ("this" if codes == [built] else ", ".join(codes) or "older"), line
            shown += 1
    assert shown > 10


def test_a_lossy_method_stands_with_the_patches_of_its_own_text():
    plain = METHOD | {"setting": {"method": "ar"}}
    slower = METHOD | {"setting": {"method": "blt-d"}, "lossless": False, "decode_speed": 1.0}
    lossy = METHOD | {"setting": {"method": "blt-d"}, "lossless": False, "bytes_per_patch": 6.5}
    conditions = {"model": "tiny", "prompt_bytes": 128, "temperature": 0.0, "repeats": 5}
    found = conditions | {"machine": "a machine", "rows": [plain, lossy, slower]}
    (row,) = speed_table.best_settings(found)
    assert row[1:5] == ("blt-d", "no", None, "1.25") and "6.50" in row


def test_a_speed_stands_beside_the_acceptance_of_its_drafts():
    drafted = METHOD | {"setting": {"method": "blt-s"}, "acceptance": {"value": 0.625}}
    conditions = {"model": "tiny", "prompt_bytes": 128, "temperature": 0.0, "repeats": 5}
    (row,) = speed_table.best_settings(conditions | {"machine": "a machine", "rows": [drafted]})
    assert dict(zip(speed_table.COLUMNS, row, strict=True))["acceptance, %"] == "62.5"


def test_a_study_that_has_only_begun_shows_no_older_table(tmp_path, studies):
    begun = batch_report() | {"complete": False}
    write(tmp_path / "speed" / "batch", begun, "# Methods in batches\n")
    report_page.build(tmp_path, [studies["speed/batch"]])
    text = (tmp_path / "report.md").read_text()
    assert "| not measured, 2 rows so far |" in text
    page = (tmp_path / "report.html").read_text()
    assert "Methods in batches" not in page and "blt-s 8" not in text


def test_what_is_complete_is_not_run_again(tmp_path, monkeypatch, capsys, studies):
    for name, done in (
        ("speed/batch/results", True),
        ("speed/wall_clock/results", False),
        ("speed/self_drafting/results", True),  # but for its windows
    ):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"complete": done, "rows": []}))
    commands = []

    class Finished:
        returncode = 0

    def run(command, cwd, check):
        commands.append(command)
        finished = Finished()
        finished.returncode = int("self_drafting" in command[2])
        return finished

    monkeypatch.setattr(report.subprocess, "run", run)
    options = type(
        "Options", (), {"results": tmp_path, "data": "texts", "smoke": True, "anew": False}
    )
    chosen = [studies[f"speed/{name}"] for name in ("batch", "wall_clock", "self_drafting")]
    assert report.run(chosen, options) == ["speed/self_drafting"]
    assert [command[2] for command in commands] == [
        "experiments.speed.wall_clock.run",
        "experiments.speed.self_drafting.run",
    ]
    results = tmp_path / "speed" / "wall_clock"
    assert commands[0][1] == "-m" and commands[0][3:5] == ["--results", str(results)]
    assert commands[0][5:] == ["--data", "texts", "--smoke"]
    told = capsys.readouterr().out
    assert "[1/2] speed/wall_clock: about 20 minutes; all together about 37 minutes left" in told


@pytest.mark.parametrize("anew", [False, True])
def test_what_was_timed_with_other_code_is_run_again_on_demand(tmp_path, studies, anew):
    chosen = studies["speed/batch"]
    path = tmp_path / "speed" / "batch" / "results.json"
    path.parent.mkdir(parents=True)
    for ran, this in (
        ({}, False), ({"code": "another"}, False), ({"code": provenance.code()}, True),
    ):  # fmt: skip
        path.write_text(json.dumps({"complete": True, "rows": [], "ran": ran}))
        assert report.complete(chosen, tmp_path, anew=anew) == (this or not anew)
    rows = [{"ran": {"code": "another"}}]  # of a study that times nothing
    path.write_text(json.dumps({"complete": True, "rows": rows, "ran": {"code": "another"}}))
    assert report.complete(chosen, tmp_path, anew=anew)


def test_every_page_is_what_its_study_writes_of_its_results(studies):
    compared = 0
    for each in studies.values():
        path = each.folder / f"{study.MAIN}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        if "rows" in found and hasattr(each.module(), "markdown"):
            page, *_ = study.page(path).read_text().partition("\nOn other processors:")
            assert page == provenance.marked(each.module().markdown(found), found), each.name
            compared += 1
    assert compared > 20


def test_a_smoke_run_keeps_out_of_the_results(tmp_path, monkeypatch, capsys):
    script = str(tmp_path / "run.py")
    for options in (study.parser("A study.", script), study.parser("A.", script, model=None)):
        assert options.parse_args(["--smoke", "--results", "elsewhere"]).smoke
        for folder in ([], ["--results", str(tmp_path)]):
            with pytest.raises(SystemExit):
                options.parse_args(["--smoke", *folder])
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


def test_the_names_of_the_files_of_a_study(tmp_path):
    main, more = tmp_path / "results.json", tmp_path / "sampled.json"
    assert [study.page(main).name, study.page(more).name] == ["README.md", "sampled.md"]
    assert [study.figure(main).name, study.figure(more).name] == ["figure.svg", "sampled.svg"]
    assert isinstance(discovery.studies()[0], Study)


def test_the_report_is_read_in_minutes():
    text = (discovery.studies()[0].folder.parents[1] / "report.md").read_text()
    assert text.count("\n") <= 400 and "## First facts" in text


def test_the_fact_of_an_accelerator_is_of_one_row_at_published_acceptance(tmp_path):
    def row(method, ms, acceptance=None, batch=1, **more):
        setting = {"batch": batch, "context": 512, "method": method, "acceptance": acceptance}
        return {"setting": setting, "ms_per_byte": ms, "floor_ms_per_round": 0.5} | more

    drafted = [
        row("blt-s 8", 1.0, "published"), row("eagle 8", 0.5, "of tiny"),
        row("plain", 9.0, batch=8),
    ]  # fmt: skip
    for plain, speeds in ([row("plain", 2.0)], [["2.00 with `blt-s 8`"]]), ([], []):
        report = {"device": "a GPU", "rows": plain + drafted}
        folder = tmp_path / str(len(plain)) / "accelerator" / "decode"
        write(folder, report, "")
        told = list(facts.sentences(folder.parents[1]))
        assert [re.findall(r"\S+ with `[^`]+`", said) for said in told] == speeds


@pytest.mark.parametrize(("kept", "verdict"), [(5.5, "**no**"), (6.5, "yes")])
def test_a_verdict_follows_the_figures(tmp_path, monkeypatch, kept, verdict):
    (eagle,) = (each for each in published_claims.CLAIMS if "EAGLE" in each.claim)
    monkeypatch.setattr(published_claims, "CLAIMS", [eagle])
    setting = {"method": "eagle", "draft_length": 12}
    row = {"kept_per_round_without_loops": {"value": kept}, "setting": setting}
    write(tmp_path / "training" / "draft_curve", {"complete": True, "rows": [row]}, "")
    (found,) = published_claims.rows(tmp_path)
    assert found[3:5] == (f"at most {kept} of 12", verdict)


def test_every_claim_finds_its_figure():
    results = discovery.studies()[0].folder.parents[1]
    rows = list(published_claims.rows(results))
    assert len(rows) == len(published_claims.CLAIMS)
    assert all(len(row) == len(published_claims.COLUMNS) and row[3] for row in rows)
