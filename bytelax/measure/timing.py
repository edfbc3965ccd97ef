"""Decoding methods beside one another, run in turns in one process."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from bytelax.decode import Method
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


class Contestant(NamedTuple):
    """A method with its options, as `generate` takes them."""

    method: str | Method
    settings: dict


PLAIN = Contestant("ar", {})


@dataclasses.dataclass(frozen=True)
class Runs:
    """The runs of one contestant.

    Attributes:
      outputs: of the last run, one for each batch of prompts.
      seconds: of each run, compiling left out.
      decode_seconds: the same without taking in the prompts.
    """

    outputs: list[Output]
    seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]

    @property
    def stats(self) -> Statistics:
        """Sums over prompts and batches."""
        total = Statistics.total([r.stats for o in self.outputs for r in o.results])
        shared = ("global_chunks", "batch_windows")
        return dataclasses.replace(
            total, **{name: sum(getattr(o.stats, name) for o in self.outputs) for name in shared}
        )

    @property
    def texts(self) -> list[bytes]:
        return [text for output in self.outputs for text in output.bytes]


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


def in_turns(
    model: Model,
    prompts: Sequence[bytes],
    contestants: Sequence[Contestant],
    *,
    new: int,
    repeats: int,
    batch: int = 1,
    temperature: float = 0.0,
) -> list[Runs]:
    """Times several methods in turns, once each has been compiled.

    Args:
      model: the model.
      prompts: continued `batch` at a time.
      contestants: what to time.
      new: bytes emitted for each prompt.
      repeats: runs of each.
      batch: rows that are decoded together.
      temperature: of all.
    """
    batches = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]

    def run(contestant: Contestant) -> list[Output]:
        return [
            generate(
                model, rows, method=contestant.method, max_new_bytes=new, allow_eos=False,
                temperature=temperature, seeds=batch * index, **contestant.settings,
            )
            for index, rows in enumerate(batches)
        ]  # fmt: skip

    for contestant in contestants:
        run(contestant)
    runs = [[run(contestant) for contestant in contestants] for _ in range(repeats)]
    return [_runs([repeat[index] for repeat in runs]) for index in range(len(contestants))]


def _runs(repeats: list[list[Output]]) -> Runs:
    seconds = [sum(o.stats.seconds for o in outputs) for outputs in repeats]
    prefill = [sum(o.stats.prefill_seconds for o in outputs) for outputs in repeats]
    decode = [whole - prompts for whole, prompts in zip(seconds, prefill, strict=True)]
    return Runs(repeats[-1], tuple(seconds), tuple(decode))


def beside(plain: Runs, own: Runs) -> Timing:
    """What the runs of a method say beside those of plain decoding."""
    return Timing(
        stats=own.stats,
        rows=len(own.texts),
        seconds=statistics.median(own.seconds),
        decode_seconds=statistics.median(own.decode_seconds),
        speed=Ratio.of(plain.seconds, own.seconds),
        decode_speed=Ratio.of(plain.decode_seconds, own.decode_seconds),
        same_outputs=sum(a == b for a, b in zip(plain.texts, own.texts, strict=True)),
        lossless=own.outputs[0].lossless,
    )


def beside_plain(
    model: Model, prompts: Sequence[bytes], method: str | Method, settings: dict, **how
) -> Timing:
    """Times one method and plain decoding in turns; `how` is that of `in_turns`."""
    contestants = [PLAIN, Contestant(method, settings)]
    return beside(*in_turns(model, prompts, contestants, **how))


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
