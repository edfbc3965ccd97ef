"""The models that a study's recipes trained, by the names of their runs."""

import pathlib
from collections.abc import Iterable

from experiments.harness import provenance


def model_of(run: pathlib.Path) -> pathlib.Path | None:
    """The model of a run; None before it has one. A directory may hold the model alone."""
    return next((each for each in (run / "model", run) if (each / "config.json").exists()), None)


def digests(runs: pathlib.Path, names: Iterable[str], measured: dict[str, str]) -> dict[str, str]:
    """Digests of all models that are here, or that were measured, by the names of their runs.

    Args:
      runs: the directory of all runs.
      names: of the runs to look for.
      measured: digests of the models that were measured.
    """
    here = {name: model_of(runs / name) for name in names}
    return measured | {name: provenance.files(each) for name, each in here.items() if each}
