"""`experiments.tables`: each table is made, and each claim finds its figure."""

import json

import pytest

from experiments import study, tables

NAMES = tables.names()


@pytest.mark.parametrize("name", NAMES)
def test_section(name):
    """A study has columns, each of which some row of its results fills."""
    _, columns = tables.described(name)
    reports = study.reports(name)
    assert reports or name not in tables.ended()
    text = "\n".join(tables.section(name))
    assert text.count("\n|---|") == len(reports)
    for report in reports:
        assert report["study"] == name and report["rows"] and report["commit"]
        assert report["rows"][0]["setting"]
    rows = [row for report in reports for row in report["rows"]]
    for column in columns if rows else ():
        # No byte flipped, and an accelerator may be at hand for minutes: not all rows are measured.
        may_be_empty = column.key == "margins" or name.startswith("accelerator")
        assert may_be_empty or any(column.cell(row) for row in rows), column


def test_claims_find_their_figures():
    rows = tables.claims()
    assert len(rows) > 15 and all(row["measured"] and row["published"] for row in rows)
    assert {row["verdict"] for row in rows} == {"yes", "no"}


def test_figure_names_a_row_that_is_not_there():
    with pytest.raises(KeyError, match="no row with"):
        tables.figure(tables.claims()[0]["key"] | {"where": {"model": "none"}})


def test_pages_are_made():
    made = tables.pages()
    assert "| `tiny-lm`" in made[tables.README] and "| `tiny-lm`" in made[tables.SPEED]
    assert "<svg" in made[tables.FIGURE]


def test_replaced_needs_its_markers():
    with pytest.raises(ValueError, match="0 places for the table speeds"):
        tables.replaced("no markers", "speeds", [])


def test_page_has_a_table_for_each_study():
    text = tables.page()
    assert all(f"\n## {name}\n" in text for name in NAMES)
    assert text.count("\n|---|") > len(NAMES)


def test_results_are_rows_of_json():
    for path in study.RESULTS.glob("*@*.json"):
        report = json.loads(path.read_text())
        assert {"study", "machine", "commit", "command", "conditions", "rows"} <= report.keys()
        assert path.name.startswith(f"{report['study']}@")
