"""The report of all studies: one Markdown file, one HTML file with its figures."""

import base64
import datetime
import html
import json
import re

import figures
import headline
from markdown_it import MarkdownIt

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
td, th { border: 1px solid #ccc; padding: 2px 6px; text-align: left }
img { max-width: 100% }
"""
_NAME = "report"
_INTRODUCTION = """# bytelax, measured

Built {date} by `python experiments/report.py`. What is below was measured by a study in
`experiments/`, which says on which machine, unless it is called published, predicted, computed or a
floor. A speed is the median of ratios to plain decoding with caches, run in turns in one process,
and stands with its range.
"""


def build(results, names):
    """Writes `report.md` and `report.html` from what the studies have written.

    Args:
      results: the directory of the results.
      names: of the studies, in the order of the report; tables of others follow behind them.
    """
    others = sorted({path.stem for path in results.glob("*.md")} - {*names, _NAME})
    found = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    # A table beside rows that are still coming is an older one.
    begun = {name: report for name, report in found.items() if not report.get("complete", True)}
    reports = {name: report for name, report in found.items() if name not in begun}
    sections = [_INTRODUCTION.format(date=datetime.date.today().isoformat())]
    sections.append("\n".join(["## In short", "", *headline.lines(reports), ""]))
    for name in (*names, *others):
        table = results / f"{name}.md"
        if table.exists() and name not in begun:
            sections.append(_section(results, name, reports.get(name), table.read_text()))
    missing = [
        f"{name} ({len(begun[name]['rows'])} rows so far)" if name in begun else name
        for name in names
        if name in begun or not (results / f"{name}.md").exists()
    ]
    if missing:
        sections.append("## Not measured yet\n\n" + ", ".join(missing) + "\n")
    text = "\n".join(sections)
    (results / f"{_NAME}.md").write_text(text)
    (results / f"{_NAME}.html").write_text(_page(results, text))


def _section(results, name, report, table):
    """A study's own page, one level down, with its figure."""
    if report is not None and "rows" in report:
        figures.draw(name, report, results / f"{name}.svg")
    figure = next((f"{name}.{end}" for end in ("svg", "png")
                   if (results / f"{name}.{end}").exists()), None)  # fmt: skip
    lines = re.sub(r"^#", "##", table, flags=re.MULTILINE).rstrip().splitlines()
    if not lines or not lines[0].startswith("#"):
        lines = [f"## {name}", "", *lines]
    if figure:
        lines += ["", f"![{name}]({figure})"]
    return "\n".join([*lines, ""])


def _page(results, text):
    body = MarkdownIt("commonmark").enable("table").render(text)

    def inlined(found):
        path = results / html.unescape(found.group(1))
        kind = "image/svg+xml" if path.suffix == ".svg" else "image/png"
        return f'src="data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"'

    body = re.sub(r'src="([^":]+)"', inlined, body)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>bytelax, measured</title>'
        f"<style>{_STYLE}</style>\n{body}</html>\n"
    )
