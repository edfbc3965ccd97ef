"""A BLT, its control and the BLT-Ds that went on from it: which there are, and how they answer."""

import hashlib
import pathlib
from collections.abc import Iterator, Sequence

import bytelax
from bytelax import Result, Statistics
from experiments.harness import intervals

BLOCK_SIZES = (4, 8, 16)
ONE_BYTE = {"unmask": "entropy", "gamma": 0.0}  # only the most certain byte fits this bound
BASE, CONTROL = "the base", "the control"
LABELS = (BASE, CONTROL, "BLT-D, published loss", "BLT-D, our loss")
_MEANS = ("rounds", "decoder_passes", "global_passes", "bandwidth_gb_with_patcher")


def model_of(run: pathlib.Path) -> pathlib.Path | None:
    """The model of a run; None before it has one. A directory may hold the model alone."""
    return next((each for each in (run / "model", run) if (each / "config.json").exists()), None)


def digest(directory: pathlib.Path) -> str:
    """The first 12 hexadecimal digits of SHA-256 of all files below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    parts = (path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes()
             for path in paths)  # fmt: skip
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def ways(label: str, rules: Sequence[dict]) -> Iterator[dict]:
    """The methods, with options, that a study compares on a model.

    Args:
      label: one of `LABELS`.
      rules: of unmasking, for a BLT-D.
    """
    chosen: list[tuple[str, dict]] = [("ar", {})]
    for size in BLOCK_SIZES:
        if label == BASE:
            chosen.append(("blt-s", {"draft_length": size}))
        elif label != CONTROL:
            chosen += [("blt-d", {"block_size": size, **how}) for how in rules]
            chosen.append(("blt-dv", {"block_size": size, "unmask": "one-step"}))
    yield from ({"method": method, "options": options} for method, options in chosen)


def answers(
    model: bytelax.Model, prompts: Sequence[str], setting: dict, *, new: int, batch: int
) -> tuple[list[Result], dict]:
    """Continues all prompts to the end of their line.

    Args:
      model: the model.
      prompts: what it continues, `batch` at a time.
      setting: with the `method` and its `options`.
      new: bytes of a continuation at most.
      batch: number of prompts that are decoded together.

    Returns:
      the continuations, and figures of a study's row: acceptance, and means of a continuation.
    """
    how = {"method": setting["method"], **setting["options"]}
    results: list[Result] = []
    for begin in range(0, len(prompts), batch):
        some = prompts[begin : begin + batch]
        results += bytelax.generate(model, some, max_new_bytes=new, stop=["\n"], **how).results
    total = Statistics.total([result.stats for result in results])
    kept = ([getattr(each.stats, name) for each in results] for name in ("accepted", "drafted"))
    verified = setting["method"] not in ("ar", "blt-d")
    return results, {
        "acceptance": intervals.of_ratio(*kept) if verified else None,
        "bytes": total.bytes / len(results),
        **{name: getattr(total, name) / len(results) for name in _MEANS},
    }
