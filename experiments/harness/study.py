"""What every study is made of: its options, and settings measured one by one.

Rows are kept as they come, so an interrupted study goes on where it was.
"""

import argparse
import json
import os
import pathlib
import re
import time
from collections.abc import Callable, Sequence

import jax
import psutil
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.harness import provenance

MAIN = "results"  # the name of a study's file of results; others of the study have their own
_OTHERS = "\nOn other processors:"


def page(results: pathlib.Path) -> pathlib.Path:
    """The Markdown beside a file of results: that of the main one is the folder's README."""
    return results.with_name("README.md" if results.stem == MAIN else f"{results.stem}.md")


def figure(results: pathlib.Path) -> pathlib.Path:
    """The drawing beside a file of results."""
    return results.with_name("figure.svg" if results.stem == MAIN else f"{results.stem}.svg")


class Parser(argparse.ArgumentParser):
    """Keeps a smoke run, whose rows look like measured ones, away from those that are.

    What is wrong with the command line is said in one line.
    """

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_args(self, *args, **more):
        options = super().parse_args(*args, **more)
        if options.smoke and options.results.resolve() == self.get_default("results").resolve():
            self.error("--smoke needs --results: another directory than that of what was measured")
        return options


def parser(doc: str, script: str, *, model: str | None = "tiny-d") -> argparse.ArgumentParser:
    """The options that every study has.

    `--smoke` asks for the least that runs through every line, for the tests.

    Args:
      doc: the study's docstring. Its first paragraph is the description, and a study needs data if
        its command has `--data DIR`.
      script: the study's `__file__`; results go into its folder by default.
      model: the default of `--model`; None for a study without that option.
    """
    options = Parser(description=" ".join(doc.split("\n\n")[0].split()))
    options.add_argument(
        "--data", type=_directory, required="--data DIR" in doc, metavar="DIR",
        help="directory of the data sets, as in docs/data.md",
    )  # fmt: skip
    if model is not None:
        options.add_argument("--model", default=model)
    options.add_argument("--results", type=pathlib.Path, default=pathlib.Path(script).parent)
    options.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    return options


def _directory(path: str) -> str:
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no directory {path}")
    return path


def run(
    path: pathlib.Path,
    conditions: dict,
    settings: Sequence[dict],
    measure: Callable[[dict], dict],
    *,
    markdown: Callable[[dict], str],
    timed: bool = True,
    partial: bool = False,
) -> dict:
    """Measures what the file does not have yet.

    Args:
      path: of the JSON; the table goes beside it, as `page` says.
      conditions: what holds for every row. The processor, the version of JAX and what `provenance`
        says are added; rows measured under others are measured again. A complete report of another
        machine is kept, in files of its name.
      settings: one for each row, as JSON.
      measure: from a setting to the row's figures; a row that has `failed` is measured again.
      markdown: from the report to its table, also while rows are missing.
      timed: whether the figures depend on the speed of the machine or the code. Where they do not,
        a row is kept until its setting or the weights change, and says what it was measured with.
      partial: write the page after every row, for hardware that is lent for a time.

    Returns:
      the report: the conditions, whether it is `complete`, how busy the processors were `before`
      each start, from 0 to 1, and `rows`, each with its `setting`, the machine's `load`, and the
      seconds that measuring it `took`.
    """
    settings = [plain(setting) for setting in settings]
    ran = provenance.of([conditions, settings])
    here = {"machine": machine_here(), "jax": jax.__version__, "ran": ran}
    conditions = plain(conditions) | here
    known, busy = {}, []
    if path.exists():
        before = json.loads(path.read_text())
        if _comparable(before, timed) == _comparable(conditions, timed):
            kept = [row for row in before["rows"] if "failed" not in row]
            known = {json.dumps(row["setting"]): row for row in kept}
            busy = before.get("before", [])
        elif timed and before.get("complete") and before["machine"] != here["machine"]:
            _keep(path, before["machine"])
    rows = [known[key] for setting in settings if (key := json.dumps(setting)) in known]
    missing = [setting for setting in settings if json.dumps(setting) not in known]
    path.parent.mkdir(parents=True, exist_ok=True)
    if missing and timed:
        busy = [*busy, round(psutil.cpu_percent(interval=1) / 100, 3)]

    def write() -> dict:
        report = conditions | {
            "complete": len(rows) == len(settings), "before": busy, "rows": rows,
        }  # fmt: skip
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(report, indent=1) + "\n")
        unfinished.replace(path)
        return report

    name = path.parent.name if path.stem == MAIN else path.stem
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeRemainingColumn()) as progress:
        task = progress.add_task(name, total=len(settings), completed=len(rows))
        for setting in missing:
            begin = time.monotonic()
            figures = plain(measure(setting))
            circumstances = {
                "load": round(os.getloadavg()[0], 1), "took": round(time.monotonic() - begin, 1),
            }  # fmt: skip
            if not timed:
                circumstances |= here | {"ran": {"code": ran["code"]}}
            rows.append({"setting": setting, **figures, **circumstances})
            rows.sort(key=lambda row: settings.index(row["setting"]))
            report = write()
            if partial:
                page(path).write_text(provenance.marked(markdown(report), report))
            progress.advance(task)
            # All programs together would need more memory maps than a process may have.
            jax.clear_caches()
    report = write()
    text = provenance.marked(markdown(report), report)
    older = _kept(path, here["machine"])
    for each in (older, page(older), figure(older)):
        each.unlink(missing_ok=True)
    prefix = f"{path.stem}_on_"
    others = sorted(path.parent.glob(f"{prefix}*.md"))
    if others:
        links = (f"[{each.stem.removeprefix(prefix)}]({each.name})" for each in others)
        text = f"{text}{_OTHERS} {', '.join(links)}.\n"
    page(path).write_text(text)
    return report


def _kept(path: pathlib.Path, machine: str) -> pathlib.Path:
    """Where results of another machine than the latest one lie."""
    named = re.sub(r"\W+", "_", machine.lower()).strip("_")
    return path.with_stem(f"{path.stem}_on_{named}")


def _keep(path: pathlib.Path, machine: str) -> None:
    """Puts what was measured on another machine into files that are named after it."""
    kept = _kept(path, machine)
    path.replace(kept)
    if page(path).exists():
        # Without its links to pages of other machines, which may go.
        text, *_ = page(path).read_text().partition(_OTHERS)
        page(kept).write_text(text)
        page(path).unlink()


def measured(path: pathlib.Path) -> dict | None:
    """The report in a file of results; None if it is not there, or has only begun."""
    report = json.loads(path.read_text()) if path.exists() else {}
    return report if report.get("complete") else None


def plain(tree):
    """As JSON gives it back: tuples are lists, paths and numpy's numbers are plain."""
    return json.loads(
        json.dumps(tree, default=lambda x: x.item() if hasattr(x, "item") else str(x))
    )


def table(header: Sequence[str], rows: Sequence[Sequence]) -> list[str]:
    """Lines of a Markdown table; a number with its own format comes as a string, None is empty."""

    def line(cells):
        return "| " + " | ".join("" if cell is None else str(cell) for cell in cells) + " |"

    return [line(header), "|---" * len(header) + "|", *map(line, rows)]


def _comparable(report: dict, timed: bool) -> dict:
    """What rows of a report share with other rows that may stand beside them."""
    of_report = {"complete", "before", "rows"}
    if not timed:
        of_report |= {"machine", "jax", "ran"}
    shared = {name: value for name, value in report.items() if name not in of_report}
    return shared if timed else shared | {"weights": report.get("ran", {}).get("weights")}


def machine_here() -> str:
    """The accelerator; without one the processor, its threads, and the kernels that it runs."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    threads = len(os.sched_getaffinity(0))
    return f"{provenance.processor()}, {threads} threads, {provenance.kernels()}"


def machine(report: dict, weights: str = "float32") -> str:
    """The sentence on where a report was measured and, if it was timed, how busy that was."""
    where = [f"{each['machine']}, jax {each['jax']}" for each in provenance.each(report)]
    on = f"{weights}, {' and '.join(dict.fromkeys(where))}"
    if provenance.counted(report):
        return on
    loads = [row["load"] for row in report["rows"]] or [0.0]
    busy = report.get("before")
    return f"{on}, load average {min(loads):.1f} to {max(loads):.1f}" + (
        f"; in the second before it began {100 * max(busy):.1f} % of all cores were busy"
        if busy
        else ""
    )
