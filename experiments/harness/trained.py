"""A BLT, its control and the BLT-Ds that went on from it: which there are, and how they answer."""

import pathlib
from collections.abc import Iterable, Iterator, Sequence

import bytelax
from bytelax.engine.results import Result, Statistics
from experiments.harness import intervals, provenance

BLOCK_SIZES = (4, 8, 16)
ONE_BYTE = {"unmask": "entropy", "gamma": 0.0}  # only the most certain byte fits this bound
BASE, CONTROL = "the base", "the control"
LABELS = (BASE, CONTROL, "BLT-D, published loss", "BLT-D, our loss")
_MEANS = ("rounds", "decoder_passes", "global_passes", "bandwidth_gb_with_patcher")


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


def ways(label: str, rules: Sequence[dict]) -> Iterator[dict]:
    """The methods, with options, that a study compares on a model.

    Args:
      label: one of `LABELS`.
      rules: of unmasking, for a BLT-D.
    """
    yield {"method": "ar"}
    if label == BASE:
        yield from ({"method": "blt-s", "draft_length": size} for size in BLOCK_SIZES)
    elif label != CONTROL:
        for size in BLOCK_SIZES:
            yield from ({"method": "blt-d", "block_size": size, **how} for how in rules)
            yield {"method": "blt-dv", "block_size": size, "unmask": "one-step"}


def answers(
    model: bytelax.Model, prompts: Sequence[str], how: dict, *, new: int, batch: int
) -> tuple[list[Result], dict]:
    """Continues all prompts to the end of their line.

    Args:
      model: the model.
      prompts: what it continues, `batch` at a time.
      how: the method with its options.
      new: bytes of a continuation at most.
      batch: number of prompts that are decoded together.

    Returns:
      the continuations, and figures of a study's row: acceptance, and means of a continuation.
    """
    results: list[Result] = []
    for begin in range(0, len(prompts), batch):
        some = prompts[begin : begin + batch]
        results += bytelax.generate(model, some, max_new_bytes=new, stop=["\n"], **how).results
    total = Statistics.total([result.stats for result in results])
    kept = ([getattr(each.stats, name) for each in results] for name in ("accepted", "drafted"))
    return results, {
        "acceptance": intervals.of_ratio(*kept),
        "bytes": total.bytes / len(results),
        **{name: getattr(total, name) / len(results) for name in _MEANS},
    }
