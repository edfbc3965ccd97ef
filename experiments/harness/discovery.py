"""Finds the studies: every folder `experiments/SUBJECT/NAME` that has a `run.py` is one.

A study's `run.py` has

  main(): measures what is missing and writes it, with its page. It takes the options of
    `study.parser`; `study.run` does the rest.

and, where it applies,

  MINUTES: about how long it takes on two cores of a processor. The report runs such a study; one
    without it needs other hardware, another environment or a trained model.
  PARTIAL: True for a study of hardware that is lent for a time: a page of some rows is shown.
  RESULTS: the names of its files of results, if there are more than `results.json`.
  headline(report): rows of the table that a reader sees first, `speed_table.COLUMNS`.
  speeds(report): those that stand on other pages too, each a `one_figure.Timed`.

Its `figure.py`, if there is one, has `draw(report)`: a figure of matplotlib, or None.
"""

import importlib
import pathlib
import types
from typing import NamedTuple

import experiments
from experiments.harness import study
from experiments.harness.one_figure import Timed


class Study(NamedTuple):
    """A study by its name, "speed/batch", and its folder."""

    name: str
    folder: pathlib.Path

    def module(self, part: str = "run") -> types.ModuleType:
        return importlib.import_module(f"{self.package}.{part}")

    @property
    def package(self) -> str:
        return f"{experiments.__name__}.{self.name.replace('/', '.')}"

    @property
    def minutes(self) -> float | None:
        """How long it takes; None if the report does not run it."""
        return getattr(self.module(), "MINUTES", None)

    @property
    def partial(self) -> bool:
        """Whether its page is shown before all rows are measured."""
        return getattr(self.module(), "PARTIAL", False)

    @property
    def results(self) -> tuple[str, ...]:
        """The names of its files of results, without their ending."""
        return getattr(self.module(), "RESULTS", (study.MAIN,))

    def headline(self, report: dict) -> list[tuple]:
        """Its rows of the table that a reader sees first."""
        rows = getattr(self.module(), "headline", None)
        return list(rows(report)) if rows and "rows" in report else []

    def speeds(self, report: dict) -> list[Timed]:
        """Its speeds beside plain decoding of settings that other studies have too."""
        found = getattr(self.module(), "speeds", None)
        return list(found(report)) if found and "rows" in report else []

    def draw(self, report: dict, path: pathlib.Path) -> None:
        """Writes its figure, if it has one."""
        if report.get("rows") and (self.folder / "figure.py").exists():
            from experiments.harness import plots  # needs matplotlib

            figure = self.module("figure").draw(report)
            if figure is not None:
                plots.save(figure, path)


def studies() -> tuple[Study, ...]:
    """All studies by name, those that the report runs first."""
    found = [
        Study(f"{script.parent.parent.name}/{script.parent.name}", script.parent)
        for root in experiments.__path__
        for script in pathlib.Path(root).glob("*/*/run.py")
    ]
    return tuple(sorted(found, key=lambda each: (each.minutes is None, each.name)))
