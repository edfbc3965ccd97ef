"""`bytelax eval`: scores a model on published tasks."""

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import rich
import rich.table

from bytelax import methods
from bytelax.commands.eval import Eval
from bytelax.commands.json_line import json_line
from bytelax.commands.progress_bar import progress_bar
from bytelax.commands.running import decoding
from bytelax.commands.running.loading import load
from bytelax.measure import evaluate, tasks
from bytelax.measure.prompted import Prompted


def run(flags: Eval) -> None:
    """Runs the command."""
    bounds = {"limit": 1, "shots": 0, "max_new_bytes": 1, "batch": 1, "seed": 0}
    for name, least in bounds.items():
        value = getattr(flags, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    methods.options_of(flags.decoding.method)  # reports a misspelt method first
    if not flags.tasks:
        raise ValueError(f"there are no tasks to score; known are: {', '.join(tasks.TASKS)}")
    read = {
        spelt: tasks.read(*_placed(spelt, flags.data), shots=flags.shots, limit=flags.limit)
        for spelt in flags.tasks
    }
    conditions = json.loads(json.dumps(dataclasses.asdict(flags), default=str))
    for other in ("tasks", "out", "json"):  # answers do not depend on these
        del conditions[other]
    kept = _Kept.open(flags.out, conditions)
    keywords = decoding.keywords(flags.decoding, flags.loading.dtype)
    if flags.max_new_bytes is not None:
        keywords["max_new_bytes"] = flags.max_new_bytes
    model = load(flags.model, flags.loading)
    if any(isinstance(task, Prompted) for task in read.values()):
        sampling = ("method", "max_new_bytes", "temperature", "top_k", "top_p")
        decoding.check(
            model,
            keywords["method"],
            {name: value for name, value in keywords.items() if name not in sampling},
            **{name: keywords[name] for name in sampling[2:]},
        )
    figures = {}
    for name, task in read.items():
        found = kept.of(name)
        if cut := evaluate.too_long(model, task, new=flags.max_new_bytes):
            told = f"bytelax: {name}: {cut} of {evaluate.examples(task)} examples do not fit"
            print(f"{told} the model's context and lose their beginning", file=sys.stderr)
        new = evaluate.answers(
            model, task, known=found, batch=flags.batch, seed=flags.seed, **keywords
        )
        with progress_bar(name, evaluate.examples(task), len(found)) as advance:
            for index, answer in new:
                kept.add(name, index, answer)
                found[index] = answer
                advance(1)
        figures[name] = evaluate.figures(task, found)
    print(json_line(figures)) if flags.json else _print(figures)


def _placed(task: str, data: Path) -> tuple[str, Path]:
    """Parses a task such as "piqa=/path" into its name and the path of its data."""
    name, _, path = task.partition("=")
    return name, Path(path) if path else data / tasks.named(name).place


def _print(figures: dict[str, dict]) -> None:
    table = rich.table.Table("task", "examples", "figure", "value", "95 %", "chance")
    for name, row in figures.items():
        for figure, value in row.items():
            if figure in ("examples", "chance", "stats", "ended"):
                continue
            interval = chance = ""
            if isinstance(value, dict):
                interval = f"{100 * value['low']:.1f} to {100 * value['high']:.1f} %"
                told, chance = f"{100 * value['value']:.1f} %", f"{100 * row['chance']:.1f} %"
            elif figure == "pass_at_1":
                told = f"{100 * value:.1f} %"
            else:
                told = "not installed" if value is None else f"{value:.2f}"
            table.add_row(name, str(row["examples"]), figure, told, interval, chance)
    rich.print(table)


@dataclasses.dataclass(frozen=True)
class _Kept:
    """Answers kept in a file of JSON lines, whose first line records their conditions."""

    path: Path | None
    rows: dict[str, dict[int, dict[str, Any]]]

    @classmethod
    def open(cls, path: Path | None, conditions: dict) -> "_Kept":
        """Reads the answers in a file, which is created if it does not exist.

        Args:
          path: the file; None keeps answers in memory only.
          conditions: model, method and data on which answers depend.

        Raises:
          ValueError: the answers in the file have other conditions, or the file holds something
            else.
        """
        kept = cls(path, {})
        if path is None:
            return kept
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]  # without an incomplete last line
        begun, rows = _parsed(path, whole, conditions) if text else (conditions, [])
        if rows and begun != conditions:
            raise ValueError(f"{path} holds answers of another model, method or data; see line 1")
        for row in rows:
            kept.of(row.pop("task"))[row.pop("index")] = row
        if rows:
            os.truncate(path, len(whole))
        else:
            path.write_text(json.dumps(conditions) + "\n")
        return kept

    def of(self, task: str) -> dict[int, dict[str, Any]]:
        """The answers to a task, by index of the example."""
        return self.rows.setdefault(task, {})

    def add(self, task: str, index: int, answer: dict[str, Any]) -> None:
        """Appends an answer to the file."""
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"task": task, "index": index, **answer}) + "\n")


def _parsed(path: Path, text: bytes, conditions: dict) -> tuple[dict, list[dict[str, Any]]]:
    """Parses the conditions and the answers in a file; raises if it is a file of another kind."""
    try:
        begun, *rows = map(json.loads, text.splitlines())
        ours = begun.keys() == conditions.keys() and all(
            {"task", "index"} <= r.keys() for r in rows
        )
    except (ValueError, AttributeError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise ValueError(f"{path} holds something other than answers; name another file")
    return begun, rows
