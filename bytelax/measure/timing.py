"""A decoding method beside plain decoding, alternating in one process."""

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from bytelax.generation import Output, generate
from bytelax.model import Model
from bytelax.statistics import Statistics


class Ratio(NamedTuple):
    """Times of plain decoding over those of a method, of neighbouring runs."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, plain: Sequence[float], own: Sequence[float]) -> "Ratio":
        ratios = [a / b for a, b in zip(plain, own, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


class Timing(NamedTuple):
    """What one method took.

    Attributes:
      stats: sums over the prompts.
      rows: prompts.
      seconds: median of the runs, and of them without taking in the prompts.
      decode_seconds: as said.
      speed: plain decoding's seconds over the method's.
      decode_speed: the same without the prompts.
      same_outputs: prompts whose output is plain decoding's at W = 1.
      lossless: whether the method claims to be.
    """

    stats: Statistics
    rows: int
    seconds: float
    decode_seconds: float
    speed: Ratio
    decode_speed: Ratio
    same_outputs: int
    lossless: bool


def beside_plain(
    model: Model,
    prompts: Sequence[bytes],
    method: str,
    settings: dict,
    *,
    new: int,
    repeats: int,
    batch: int = 1,
    temperature: float = 0.0,
) -> Timing:
    """Times a method and plain decoding in turns, once each has been compiled.

    Args:
      model: the model.
      prompts: continued `batch` at a time.
      method: a method's name.
      settings: its options.
      new: bytes emitted for each prompt.
      repeats: pairs of runs.
      batch: rows that are decoded together, by both.
      temperature: of both.
    """

    batches = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]

    def run(method, settings) -> list[Output]:
        return [
            generate(
                model, rows, method=method, max_new_bytes=new, allow_eos=False,
                temperature=temperature, seeds=batch * index, **settings,
            )
            for index, rows in enumerate(batches)
        ]  # fmt: skip

    run("ar", {}), run(method, settings)
    times: dict[str, list[float]] = {"plain": [], "own": [], "plain decode": [], "own decode": []}
    for _ in range(repeats):
        plain, out = run("ar", {}), run(method, settings)
        for name, outputs in (("plain", plain), ("own", out)):
            seconds = sum(o.stats.seconds for o in outputs)
            times[name].append(seconds)
            prefill = sum(o.stats.prefill_seconds for o in outputs)
            times[f"{name} decode"].append(seconds - prefill)
    results = [r for o in out for r in o.results]
    return Timing(
        stats=Statistics.total([r.stats for r in results]),
        rows=len(results),
        seconds=statistics.median(times["own"]),
        decode_seconds=statistics.median(times["own decode"]),
        speed=Ratio.of(times["plain"], times["own"]),
        decode_speed=Ratio.of(times["plain decode"], times["own decode"]),
        same_outputs=sum(
            a.bytes == b.bytes
            for a, b in zip((r for o in plain for r in o.results), results, strict=True)
        ),
        lossless=out[0].lossless,
    )


def figures(timing: Timing) -> dict:
    """As JSON: counts are means over the prompts."""
    stats = timing.stats.to_dict()
    means = (
        "rounds", "decoder_passes", "encoder_passes", "global_passes", "patcher_passes",
        "draft_model_passes", "bandwidth_gb", "bandwidth_gb_with_patcher", "patches",
    )  # fmt: skip
    return {
        "acceptance": stats["acceptance"],
        "acceptance_by_position": stats["acceptance_by_position"],
        "bytes_per_round": stats["bytes_per_round"],
        "bytes_per_patch": stats["bytes_per_patch"],
        **{name: stats[name] / timing.rows for name in means},
        "bytes_per_second": timing.stats.bytes / timing.seconds,
        "decode_bytes_per_second": timing.stats.bytes / timing.decode_seconds,
        "speed": timing.speed.median,
        "decode_speed": timing.decode_speed.median,
        "decode_speed_range": [timing.decode_speed.lowest, timing.decode_speed.highest],
        "same_outputs": timing.same_outputs,
        "lossless": timing.lossless,
    }
