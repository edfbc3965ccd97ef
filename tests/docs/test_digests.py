"""Which code a figure is of: its results, their page and the report say the same."""

import json
import re

import pytest

from experiments.harness import discovery, provenance, study
from tests.helpers import pages

REPORT = pages.ROOT / "experiments" / "report.md"


def found():
    """Each file of results that has a page, with the codes that it notes."""
    for each in discovery.studies():
        for path in sorted(each.folder.glob("*.json")):
            report = json.loads(path.read_text())
            noted = {part.get("ran", {}).get("code") for part in provenance.each(report)} - {None}
            if noted and study.page(path).exists():
                yield path, sorted(noted)


FOUND = list(found())
NAMES = [str(path.relative_to(REPORT.parent)) for path, _ in FOUND]


@pytest.mark.parametrize(("path", "codes"), FOUND, ids=NAMES)
def test_a_page_and_the_report_are_of_the_code_of_their_results(path, codes):
    page = study.page(path)
    (noted,) = re.findall(r"^Code (.+)\.$", page.read_text(), re.MULTILINE)
    assert sorted(noted.split(", ")) == codes, "a page of other results"
    link = f"({page.relative_to(REPORT.parent)})"
    (line,) = [line for line in REPORT.read_text().splitlines() if f"{link} | " in line]
    told = re.findall(r"[0-9a-f]{12}|this", line.split("|")[-2])
    built = re.search(r"of code ([0-9a-f]{12})", REPORT.read_text())[1]
    assert sorted(built if code == "this" else code for code in told) == codes, "an older report"
