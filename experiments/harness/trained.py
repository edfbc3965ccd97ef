"""A BLT, its control and the BLT-Ds that went on from it: which there are, and how they answer."""

import hashlib
import pathlib
from collections.abc import Iterator, Sequence

import bytelax
from bytelax import Result, Statistics
from experiments.harness import intervals, published_fast_blt

BLOCK_SIZES = (4, 8, 16)
ONE_BYTE = {"unmask": "entropy", "gamma": 0.0}  # only the most certain byte fits this bound
BASE, CONTROL = "the base", "the control"
LABELS = (BASE, CONTROL, "BLT-D, published loss", "BLT-D, our loss")
ONE_STEP, REFRESH = {"unmask": "one-step"}, {"latent": "refresh"}
# Beside plain decoding: all weights that are read, and those that the formula of Fast BLT counts.
_READ = {"weights_read": "bandwidth_gb_with_patcher", "weights_by_formula": "bandwidth_gb"}
_MEANS = ("rounds", "decoder_passes", "global_passes", *_READ.values())


def model_of(run: pathlib.Path) -> pathlib.Path | None:
    """The model of a run; None before it has one. A directory may hold the model alone."""
    return next((each for each in (run / "model", run) if (each / "config.json").exists()), None)


def digest(directory: pathlib.Path) -> str:
    """The first 12 hexadecimal digits of SHA-256 of all files below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    parts = (path.relative_to(directory).as_posix().encode() + b"\0" + path.read_bytes()
             for path in paths)  # fmt: skip
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def ways(label: str) -> Iterator[dict]:
    """The methods, with options, that a study compares on a model, one of `LABELS`.

    BLT-S runs on every model but the control. What verifies runs with a pass a round, and as
    published, with a second one that renews the latent.
    """
    chosen: list[tuple[str, dict]] = [("ar", {})]
    for size in BLOCK_SIZES if label != CONTROL else ():
        chosen += [("blt-s", {"draft_length": size, **how}) for how in ({}, REFRESH)]
        if label != BASE:
            quality = (ONE_STEP, *published_fast_blt.rules("blt-d"), ONE_BYTE)
            drafts = (*published_fast_blt.rules("blt-dv"), ONE_STEP | REFRESH)
            for method, rules in (("blt-d", quality), ("blt-dv", drafts)):
                chosen += [(method, {"block_size": size, **how}) for how in rules]
    yield from ({"method": method, "options": options} for method, options in chosen)


_plain: dict[tuple, list[Statistics]] = {}  # of plain decoding of a model's prompts


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
      the continuations, and figures of a study's row: acceptance, what is published of it, weights
      beside those of plain decoding, and means of a continuation.
    """

    def decoded(**how):
        results: list[Result] = []
        for begin in range(0, len(prompts), batch):
            some = prompts[begin : begin + batch]
            results += bytelax.generate(model, some, max_new_bytes=new, stop=["\n"], **how).results
        return results

    key = setting["trained"], new, tuple(prompts)
    if key not in _plain:
        _plain[key] = [each.stats for each in decoded(method="ar")]
    results = decoded(method=setting["method"], **setting["options"])
    total = Statistics.total([result.stats for result in results])
    kept = ([getattr(each.stats, name) for each in results] for name in ("accepted", "drafted"))
    verified = setting["method"] not in ("ar", "blt-d")
    return results, {
        "acceptance": intervals.of_ratio(*kept) if verified else None,
        **published_fast_blt.shown(setting["method"], setting["options"]),
        **{
            name: intervals.of_ratio(
                [getattr(each.stats, field) for each in results],
                [getattr(each, field) for each in _plain[key]],
            )
            for name, field in _READ.items()
        },
        "bytes": total.bytes / len(results),
        **{name: getattr(total, name) / len(results) for name in _MEANS},
    }
