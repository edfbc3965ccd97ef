"""The report of all studies: one Markdown file, one HTML file with its figures."""

import base64
import datetime
import html
import json
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markdown_it import MarkdownIt

from experiments.harness import facts, provenance, published_claims, speed_table, study
from experiments.harness.discovery import Study

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
td, th { border: 1px solid #ccc; padding: 2px 6px; text-align: left }
img { max-width: 100% }
"""
_NAME = "report"
_INTRODUCTION = """# bytelax, measured

Built {date} by `python -m experiments.harness.report`, of code {code}. Figures are measured by
studies in `experiments/`, whose pages name the machine, unless they are called published,
predicted, computed or a floor. A speed is the median ratio to plain decoding with caches, over
runs in turns in one process; its range is beside it. The last table says which studies are of
other code, and has the pages of other processors. `report.html` has all pages in one.

## First facts
"""


class _Part(NamedTuple):
    """A file of results, and what stands beside it.

    Attributes:
      study: that wrote it.
      path: of the JSON.
      report: what it holds; None if it is not there.
    """

    study: Study
    path: pathlib.Path
    report: dict | None

    @property
    def name(self) -> str:
        return self.study.name + (f", {self.path.stem}" if self.path.stem != study.MAIN else "")

    @property
    def begun(self) -> bool:
        """Whether rows are still coming: a table beside them is an older one."""
        return self.report is not None and not self.report.get("complete", True)

    def line(self) -> tuple:
        """Its row of the table of studies: a link, what it measures, and with which code."""
        name = f"[{self.name}]({self.study.name}/{study.page(self.path).name})"
        what = (self.study.module().__doc__ or "").split("\n")[0]
        begun = f", {len(self.report['rows'])} rows so far" if self.report and self.begun else ""
        if not self.shown:
            return self.name, what, f"not measured{begun}"
        if self.report is None or "rows" not in self.report:
            return name, what, None
        codes = {each.get("ran", {}).get("code", "older") for each in provenance.each(self.report)}
        told = ", ".join(sorted(codes)) if codes != {provenance.code()} else "this"
        return name, what, f"{told}{begun}"

    @property
    def shown(self) -> bool:
        return study.page(self.path).exists() and (self.study.partial or not self.begun)


def build(results: pathlib.Path, studies: Sequence[Study]) -> None:
    """Writes `report.md` and `report.html` from what the studies have written.

    Args:
      results: the directory in which each study has a folder of its name.
      studies: in the order of the report.
    """
    parts = [part for each in studies for part in _parts(results, each)]
    shown = [part for part in parts if part.shown]
    for part in shown:
        if part.report is not None:
            part.study.draw(part.report, study.figure(part.path))
    latest = [part for part in shown if part.report and part.path.stem in part.study.results]
    rows = [row for part in latest for row in part.study.headline(part.report)]
    text = "\n".join([
        _INTRODUCTION.format(date=datetime.date.today().isoformat(), code=provenance.code()),
        *(f"{nth}. {fact}" for nth, fact in enumerate(facts.sentences(results), 1)),
        "",
        "## Published beside measured",
        "",
        published_claims.SOURCES,
        "",
        *study.table(published_claims.COLUMNS, list(published_claims.rows(results))),
        "",
        "## Speeds",
        "",
        *study.table(speed_table.COLUMNS, rows),
        "",
        "## Studies",
        "",
        *study.table(("study", "what it measures", "code"), [part.line() for part in parts]),
        "",
    ])  # fmt: skip
    (results / f"{_NAME}.md").write_text(text)
    whole = "\n".join([text, *(_section(results, part) for part in shown)])
    (results / f"{_NAME}.html").write_text(_page(results, whole))


def _parts(results: pathlib.Path, each: Study) -> Iterator[_Part]:
    """Those that a study should have written, then those that it wrote on other hardware."""
    folder = results / each.name
    found = {path.stem for path in folder.glob("*.json")}
    for name in (*each.results, *sorted(found - set(each.results))):
        path = folder / f"{name}.json"
        yield _Part(each, path, json.loads(path.read_text()) if path.exists() else None)


def _section(results: pathlib.Path, part: _Part) -> str:
    """A study's own page, one level down and with links from here, with its figure."""
    drawing = study.figure(part.path)
    page = study.page(part.path)
    text = re.sub(
        r"\]\((?![a-z]+:|#)([^)]+)\)",
        lambda link: f"]({os.path.relpath(page.parent / link[1], results)})",
        page.read_text(),
    )
    lines = re.sub(r"^#", "##", text, flags=re.MULTILINE).rstrip().splitlines()
    if not lines or not lines[0].startswith("#"):
        lines = [f"## {part.name}", "", *lines]
    if drawing.exists():
        lines += ["", f"![{part.name}]({drawing.relative_to(results)})"]
    return "\n".join([*lines, ""])


def _page(results, text):
    body = MarkdownIt("commonmark").enable("table").render(text)

    def inlined(found):
        path = results / html.unescape(found.group(1))
        return f'src="data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"'

    body = re.sub(r'src="([^":]+)"', inlined, body)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>bytelax, measured</title>'
        f"<style>{_STYLE}</style>\n{body}</html>\n"
    )
