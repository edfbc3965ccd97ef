"""What every study is made of: its options, and rows that are measured one by one.

A study is a file of `experiments/studies` with a docstring, which says what it measures and how it
is run, `COLUMNS`, its table as a list of `Column`, and `main`, which calls `run`. Rows are written
as they come, to `experiments/results/STUDY@MACHINE.json`, so an interrupted study can be resumed.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import psutil
from bytelax_kernels import native
from rich.progress import track

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
# The code that the speed of decoding depends on, and that of training: not the cards of models.
CODE = (
    "bytelax", "kernels", ":!bytelax/training", ":!bytelax/models/block_attention.py", ":!*.md",
)  # fmt: skip
TRAINING = ("bytelax", "kernels", ":!*.md")
# What stands for one's own directories where a command is kept.
PLACES = {"--data": "DIR", "--tasks": "TASKS", "--runs": "RUNS", "--results": "RESULTS"}


class Column(NamedTuple):
    """A column of a table.

    Attributes:
      title: its header.
      key: the field of a row, or of its `setting`; a dot leads into a field.
      form: format of a number, as in an f-string. `%` formats are of shares.
    """

    title: str
    key: str
    form: str = ""

    def value(self, row: dict) -> Any:
        """The field of a row; None where the row lacks it."""
        found: Any = row["setting"] | row
        for part in self.key.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def cell(self, row: dict) -> str:
        """The cell of a row; empty where the row lacks the field."""
        return shown(self.value(row), self.form)


def shown(value: Any, form: str = "") -> str:
    """A value as a table shows it; a figure with its interval, and options by name."""
    if value is None or value == {}:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict) and "interval" in value:
        low, high = (format(each, form) for each in value["interval"])
        return f"{value['value']:{form}} ({low} to {high})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {shown(each, form)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(shown(each, form) for each in value)
    if isinstance(value, str) or not form:
        return str(value)
    return format(value, form)


class Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and keeps trial rows apart from measured ones."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}\n")

    def parse_args(self, *args, **more):
        options = super().parse_args(*args, **more)
        if options.smoke and options.results.resolve() == RESULTS.resolve():
            self.error("--smoke writes rows that are no measurements: give another --results")
        return options


def parser(doc: str) -> Parser:
    """A parser with the options that every study has.

    Args:
      doc: the docstring of the study. If its command has `--data DIR`, the option is required.
    """
    options = Parser(description=doc.splitlines()[0])
    options.add_argument(
        "--data", type=directory, required="--data DIR" in doc, metavar="DIR",
        help="directory of the data sets, as in docs/data.md",
    )  # fmt: skip
    options.add_argument("--results", type=pathlib.Path, default=RESULTS)
    options.add_argument("--smoke", action="store_true", help="a few bytes of everything")
    return options


def directory(path: str) -> str:
    """The type of an option that names a directory."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no directory {path}")
    return path


def command(name: str, flags: Sequence[str]) -> str:
    """The command of a study, in which one's own directories go by the names in its docstring."""
    words = [
        word for flag in flags for word in (flag.split("=", 1) if flag.startswith("--") else [flag])
    ]
    shown = [PLACES.get(before, word) for before, word in zip(["", *words], words, strict=False)]
    return shlex.join(["python", "-m", f"experiments.studies.{name}", *shown])


def run(
    name: str,
    options: argparse.Namespace,
    settings: Sequence[dict],
    measure: Callable[[dict], dict | list[dict]],
    *,
    conditions: dict | None = None,
    timed: bool = True,
    code: Sequence[str] = CODE,
) -> list[dict]:
    """Measures the settings that the study's file does not have yet, and writes each at once.

    Args:
      name: of the study.
      options: with `results`, the directory of the file.
      settings: of the rows, as JSON.
      measure: from a setting to the figures of its row, or of each of its rows.
      conditions: what holds for every row.
      timed: whether the figures depend on the speed of the code. If so, rows of another commit are
        measured again; otherwise only those of other conditions or bundled weights.
      code: what the rows depend on, as paths of git.

    Returns:
      the rows of the file: each has its `setting`, its figures and the machine's `load`. One that
      has `failed` is measured again in the next run. Rows of settings that are not asked for now,
      such as those of models that are elsewhere, stay.
    """
    settings, conditions = plain(settings), plain(conditions or {})
    path = options.results / f"{name}@{machine_slug()}.json"
    here = {
        "study": name,
        "machine": machine(),
        "jax": jax.__version__,
        "commit": commit(*code),
        "weights": weights(settings),
        "command": command(name, sys.argv[1:]),
        "busy_before": round(psutil.cpu_percent(interval=0.2) / 100, 2),
        "conditions": conditions,
    }
    rows: list[dict] = []
    if path.exists():
        before = json.loads(path.read_text())
        same = ("conditions", "weights", *(("commit", "jax", "machine") if timed else ()))
        if all(before[key] == here[key] for key in same):
            rows = [row for row in before["rows"] if "failed" not in row]
            if rows and here["commit"] not in before["commit"]:
                here["commit"] = f"{before['commit']}, {here['commit']}"
    known = [row["setting"] for row in rows]
    missing = [setting for setting in settings if setting not in known]
    if rows and (not missing or any(setting not in settings for setting in known)):
        # This command does not ask for all rows, or it measured none of them.
        here |= {key: before[key] for key in ("command", "busy_before")}
    order = settings + [setting for setting in known if setting not in settings]
    for setting in track(missing, name):
        found = plain(measure(setting))
        load = round(os.getloadavg()[0], 1)
        new = found if isinstance(found, list) else [found]
        rows += [{"setting": setting, **each, "load": load} for each in new]
        rows.sort(key=lambda row: order.index(row["setting"]))
        write(path, here | {"rows": rows})
        # All programs together would need more memory maps than a process may have.
        jax.clear_caches()
    if not missing:
        write(path, here | {"rows": rows})
    return rows


def reports(name: str, results: pathlib.Path = RESULTS) -> list[dict]:
    """The files of a study, each with rows of one machine."""
    return [json.loads(path.read_text()) for path in sorted(results.glob(f"{name}@*.json"))]


def measured(name: str, **where) -> dict:
    """The row of a study, of any machine, whose setting has just these fields."""
    for report in reports(name):
        for row in report["rows"]:
            if row["setting"] == where:
                return row
    raise KeyError(f"no row of {name} has the setting {where}")


def spread(median: float, lowest: float, highest: float) -> dict:
    """A figure of repeats with its range, as a row has it; takes a `timing.Ratio`, unpacked."""
    return {"value": median, "interval": [lowest, highest]}


def write(path: pathlib.Path, report: dict) -> None:
    """Writes a file of results, a row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {key: value for key, value in report.items() if key != "rows"}
    rows = ",\n".join(f"  {json.dumps(row)}" for row in report["rows"])
    unfinished = path.with_suffix(".part")
    unfinished.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "rows": [\n{rows}\n ]\n}}\n')
    unfinished.replace(path)


def plain(tree: Any) -> Any:
    """A tree as JSON returns it, with numbers of five digits."""
    if isinstance(tree, dict):
        return {str(key): plain(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [plain(value) for value in tree]
    if hasattr(tree, "item"):
        tree = tree.item()
    if isinstance(tree, float):
        return float(f"{tree:.5g}")
    return tree if tree is None or isinstance(tree, str | int | bool) else str(tree)


def weights(settings: Sequence[dict]) -> dict[str, str]:
    """The commits of the weights of the bundled models that settings name."""
    named = json.dumps(settings)
    return {
        path.parent.name: commit(str(path.relative_to(ROOT)))
        for path in sorted(ROOT.glob("bytelax/assets/*/model.safetensors"))
        if f'"{path.parent.name}"' in named
    }


def commit(*paths: str) -> str:
    """The last commit that changed the paths, with a `+` where they have changed since."""

    def git(*words):
        return subprocess.run(
            ["git", "-C", str(ROOT), *words, "--", *paths], capture_output=True, text=True
        ).stdout.strip()

    changed = "+" if git("status", "--porcelain") else ""
    return f"{git('log', '-1', '--abbrev=7', '--format=%h') or 'unknown'}{changed}"


def machine() -> str:
    """The accelerator; without one the processor, its threads and the kernels that it runs."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        return device.device_kind
    kernels = "compiled kernels" if native.available() else "XLA's kernels"
    return f"{processor()}, {len(psutil.Process().cpu_affinity())} threads, {kernels}"


def machine_slug() -> str:
    """The machine's name in names of files."""
    name = machine().split(",")[0]
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((?:R|TM)\)| Processor", "", name).lower()).strip(
        "-"
    )


def processor() -> str:
    """The model of the processor, and its widest vector instructions."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = set(re.findall(r"\b(?:avx512f|avx2|amx_tile|asimd)\b", text))
    widest = next((x for x in ("amx_tile", "avx512f", "avx2", "asimd") if x in flags), None)
    name = model[1].strip() if model else platform.machine()
    return f"{name} ({widest})" if widest else name
