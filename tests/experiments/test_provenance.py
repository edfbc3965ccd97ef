"""Rows of other code, compiler options or weights are not kept, and pages say what they rest on."""

import json

import pytest

from experiments.harness import provenance, study


def measured(path, calls, timed=True, **conditions):
    def measure(setting):
        calls.append(setting)
        return {"figure": len(calls)}

    return study.run(
        path, conditions, [{"model": "tiny"}], measure, timed=timed,
        markdown=lambda report: "# Title\n\nText.\n",
    )  # fmt: skip


@pytest.mark.parametrize("changed", ["code", "options", "weights"])
def test_rows_of_another_digest_are_measured_again(tmp_path, changed):
    path, calls = tmp_path / "results.json", []
    first = measured(path, calls)
    assert set(first["ran"]["weights"]) == {"tiny"}
    assert measured(path, calls)["rows"] == first["rows"] and len(calls) == 1
    report = json.loads(path.read_text())
    report["ran"][changed] = "another"
    path.write_text(json.dumps(report))
    assert measured(path, calls)["rows"] != first["rows"] and len(calls) == 2


@pytest.mark.parametrize("changed", ["code", "options", "weights"])
def test_rows_that_are_not_timed_are_kept_as_long_as_the_weights(tmp_path, changed):
    path, calls = tmp_path / "results.json", []
    first = measured(path, calls, timed=False)
    report = json.loads(path.read_text())
    report["ran"][changed] = "another"
    path.write_text(json.dumps(report))
    again = measured(path, calls, timed=False)
    assert (again["rows"] == first["rows"]) == (changed != "weights")
    report["rows"][0]["ran"]["code"] = "of-then"
    path.write_text(json.dumps(report | {"ran": first["ran"]}))
    measured(path, calls, timed=False)
    assert (tmp_path / "README.md").read_text().endswith("\n\nCode of-then.\n")


def test_rows_without_a_digest_are_measured_again(tmp_path):
    path, calls = tmp_path / "results.json", []
    measured(path, calls)
    report = json.loads(path.read_text())
    del report["ran"]
    path.write_text(json.dumps(report))
    measured(path, calls)
    assert len(calls) == 2


def test_a_page_says_how_busy_the_processors_were_before_each_start(tmp_path, monkeypatch):
    path, calls, shares = tmp_path / "results.json", [], [0.0, 25.0]
    monkeypatch.setattr(study.psutil, "cpu_percent", lambda interval: shares.pop(0))
    assert measured(path, calls)["before"] == [0.0]
    report = json.loads(path.read_text())
    report["rows"][0]["failed"] = "interrupted"
    path.write_text(json.dumps(report))
    again = measured(path, calls)
    assert again["before"] == [0.0, 0.25] and "25.0 % of all cores" in study.machine(again)
    assert measured(path, calls)["before"] == again["before"]  # nothing was missing
    counted = measured(tmp_path / "counted.json", calls, timed=False)
    assert counted["before"] == [] and "load" not in study.machine(counted)


def test_a_page_names_its_code_and_its_processor(tmp_path):
    report = measured(tmp_path / "results.json", [])
    assert report["machine"].startswith(provenance.processor())
    page = (tmp_path / "README.md").read_text()
    assert page == f"# Title\n\nText.\n\nCode {provenance.code()}.\n"


def test_an_old_page_is_marked_once():
    page = provenance.marked("# Title\n\nText.\n", {})
    assert page == f"# Title\n\n{provenance.OLD}\n\nText.\n"
    assert provenance.marked(page, {}) == page


def test_what_another_machine_took_is_kept_beside(tmp_path, monkeypatch):
    path, calls = tmp_path / "results.json", []
    first, second = "EPYC (avx512f), 2 threads", "EPYC (avx512f), 4 threads"
    for machine in (first, second, first):
        monkeypatch.setattr(study, "machine_here", lambda machine=machine: machine)
        measured(path, calls)
    assert len(calls) == 3 and json.loads(path.read_text())["machine"] == first
    kept = "results_on_epyc_avx512f_4_threads"
    assert json.loads((tmp_path / f"{kept}.json").read_text())["machine"] == second
    told = (tmp_path / f"{kept}.md").read_text()
    assert told.startswith("# Title\n\nText.") and "On other processors" not in told
    told = (tmp_path / "README.md").read_text()
    assert told.endswith(f"On other processors: [epyc_avx512f_4_threads]({kept}.md).\n")
    assert len(list(tmp_path.iterdir())) == 4


@pytest.mark.parametrize("partial", [True, False])
def test_what_was_measured_before_the_time_ended_has_a_page_if_asked(tmp_path, partial):
    def measure(setting):
        if setting["nth"]:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        study.run(
            tmp_path / "results.json", {}, [{"nth": 0}, {"nth": 1}], measure,
            markdown=lambda report: f"# {len(report['rows'])} row", partial=partial,
        )  # fmt: skip
    page = tmp_path / "README.md"
    assert page.exists() == partial
    assert not partial or page.read_text().startswith("# 1 row\n")
