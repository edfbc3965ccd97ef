"""Writes docs/results.md, the tables of other pages and the README's figure, from rows of studies.

python -m experiments.tables            with --check, nothing is written: status 1 if they differ
"""

import argparse
import importlib
import json
import pathlib
import pkgutil
import re
import sys
from collections.abc import Iterable, Sequence

from experiments import studies, study, timeline
from experiments.study import RESULTS, ROOT, Column, shown

PAGE, README = ROOT / "docs" / "results.md", ROOT / "README.md"
SPEED = ROOT / "docs" / "speed.md"
FIGURE = ROOT / "docs" / "drafts.svg"
CLAIMS = RESULTS / "claims.json"
ENDED = RESULTS / "ended.json"
HEAD = """\
# Results

Made by `python -m experiments.tables` from [experiments/results](../experiments/README.md): a table
for each study and machine. In brackets: 95 % intervals from resampling prompts, or the range of the
repeats of a time. "Loops" are continuations that end in a repeated stretch, which is easy to draft;
columns "without loops" leave them out. "T" is the temperature. Speeds are multiples of plain
decoding (one byte a pass, with caches) of the same weights on the same machine, for one row of text
unless a column says how many.
"""


def table(columns: Sequence[Column], rows: Iterable[dict]) -> list[str]:
    """Lines of a Markdown table; columns that are empty in all rows are left out."""
    cells = [[column.cell(row) for column in columns] for row in rows]
    kept = [place for place in range(len(columns)) if any(row[place] for row in cells)]
    return markdown(
        [columns[place].title for place in kept], [[row[place] for place in kept] for row in cells]
    )


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    first, *others = (f"| {' | '.join(line)} |" for line in (header, *rows))
    return [first, "|---" * len(header) + "|", *others]


def ended() -> dict[str, dict]:
    """The studies whose question is answered, by name: what they measured, and their columns."""
    return json.loads(ENDED.read_text())


def described(name: str) -> tuple[str, list[Column]]:
    """What a study says of itself, and the columns of its table."""
    if found := ended().get(name):
        return found["about"], [Column(*each) for each in found["columns"]]
    module = importlib.import_module(f"{studies.__name__}.{name}")
    return module.__doc__.strip(), module.COLUMNS


def section(name: str, results: pathlib.Path = RESULTS) -> list[str]:
    """The part of the page that shows a study: what it measures, and a table for each machine."""
    about, columns = described(name)
    lines = [f"## {name}", "", about, ""]
    found = study.reports(name, results)
    for report in found:
        conditions = shown(report["conditions"]).replace("_", " ")
        lines += [
            f"{report['machine']}, jax {report['jax']}, commit {report['commit']}"
            f"{'; ' if conditions else ''}{conditions}.",
            "",
            *table(columns, report["rows"]),
            "",
        ]
    return lines if found else [*lines, "Not measured.", ""]


def figure(key: dict, results: pathlib.Path = RESULTS) -> str:
    """The figures of the rows that a key names; of more than two the lowest and the highest.

    Args:
      key: `file` without its ending, `where` the fields of the rows, `figure` a column's key, and
        its `form`.
      results: directory of the files.

    Raises:
      KeyError: no row has the fields and the figure.
    """
    report = json.loads((results / f"{key['file']}.json").read_text())
    rows = [row for row in report["rows"] if key["where"].items() <= flat(row).items()]
    column = Column("", key["figure"], key["form"])
    found = [column.value(row) for row in rows]
    found = list(dict.fromkeys(map(json.dumps, (each for each in found if each is not None))))
    values = [json.loads(each) for each in found]
    if not values:
        raise KeyError(f"{key['file']}: no row with {key['where']} has {key['figure']}")
    texts = list(dict.fromkeys(shown(value, key["form"]) for value in values))
    if len(texts) > 2:
        return f"{min(values):{key['form']}} to {max(values):{key['form']}}"
    return " and ".join(texts)


def flat(row: dict) -> dict:
    """The fields of a row that keys compare, those of its options as `options.NAME` too."""
    fields = row["setting"] | row
    return fields | {f"options.{k}": v for k, v in fields.get("options", {}).items()}


def claims(results: pathlib.Path = RESULTS) -> list[dict]:
    """The claims, each with the `measured` figures that its key names."""
    rows = json.loads((results / CLAIMS.name).read_text())
    return [row | {"measured": figure(row["key"], results)} for row in rows]


_VERDICTS = {"yes": "yes", "no": "**no**"}


def claims_table(rows: Iterable[dict]) -> list[str]:
    """The table of claims; the study of each is linked from the page of results."""
    return markdown(
        ["source", "claim", "published", "measured here", "holds here", "reason"],
        [
            [row["source"], row["claim"], row["published"], row["measured"],
             _VERDICTS[row["verdict"]], row["reason"]]
            for row in rows
        ],
    )  # fmt: skip


def speed_table(*, headline: bool = False, results: pathlib.Path = RESULTS) -> list[str]:
    """The table of speeds, from `speeds.json`: a row a model and drafter, or the README's rows."""
    lines = []
    for row in json.loads((results / "speeds.json").read_text()):
        if headline and not row.get("readme"):
            continue
        cells = [speed(key, results) if key else "" for key in row["figures"]]
        lines.append([row["model"], row["drafts"], row["on"], *cells])
    header = ["model", "drafts of each round", "one text at a time, on", "T = 0", "T = 1"]
    return markdown([*header, "at published acceptance"], lines)


def speed(key: dict, results: pathlib.Path = RESULTS) -> str:
    """A speed with its range, and the share of the drafted bytes that was kept."""
    try:
        kept = figure(key | {"figure": "acceptance", "form": ".0%"}, results)
    except KeyError:
        return figure(key, results)
    return f"{figure(key, results)}, {kept.split(' (')[0]} kept"


def names() -> list[str]:
    """All studies, those that have ended too."""
    return sorted([*ended(), *(module.name for module in pkgutil.iter_modules(studies.__path__))])


def page(results: pathlib.Path = RESULTS) -> str:
    """The page of all results."""
    lines = [HEAD, "## Published and measured", "", *claims_table(claims(results)), ""]
    for name in names():
        lines += section(name, results)
    return "\n".join(lines)


def replaced(text: str, name: str, lines: Sequence[str]) -> str:
    """A text with what stands between the markers of a table replaced."""
    begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    new, count = pattern.subn(lambda _: f"{begin}\n" + "\n".join(lines) + f"\n\n{end}", text)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table {name}, not one")
    return new


def pages(results: pathlib.Path = RESULTS) -> dict[pathlib.Path, str]:
    """All that is made of rows, by its path."""
    headline = speed_table(headline=True, results=results)
    return {
        PAGE: page(results),
        README: replaced(README.read_text(), "headline", headline),
        SPEED: replaced(SPEED.read_text(), "speeds", speed_table(results=results)),
        FIGURE: timeline.svg(results),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    wanted = pages()
    other = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    for path in other:
        if options.check:
            print(f"{path.relative_to(ROOT)} is not made from these rows: run this without --check")
        else:
            path.write_text(wanted[path])
    return int(options.check and bool(other))


if __name__ == "__main__":
    sys.exit(main())
