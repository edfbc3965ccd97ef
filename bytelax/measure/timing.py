"""Times decoding methods side by side, in alternating runs in one process."""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from bytelax.decode import Method
from bytelax.model import Model
from bytelax.running import Output, Statistics, generate


class Ratio(NamedTuple):
    """Speed-up over plain decoding: ratios of the times of neighbouring runs."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, plain: Sequence[float], own: Sequence[float]) -> "Ratio":
        """Computes the ratios from the times of plain decoding and those of a method."""
        ratios = [a / b for a, b in zip(plain, own, strict=True)]
        return cls(statistics.median(ratios), min(ratios), max(ratios))


class Contestant(NamedTuple):
    """A method and its options, as for `generate`."""

    method: str | Method
    settings: dict


PLAIN = Contestant("ar", {})


@dataclasses.dataclass(frozen=True)
class Runs:
    """The runs of one contestant.

    Attributes:
      outputs: outputs of the last run, one per batch of prompts.
      seconds: time of each run, without compiling.
      decode_seconds: time of each run, without compiling and prefill.
    """

    outputs: list[Output]
    seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]

    @property
    def stats(self) -> Statistics:
        """Statistics summed over prompts and batches."""
        return Statistics.sum([output.stats for output in self.outputs])

    @property
    def texts(self) -> list[bytes]:
        """The continuations of all prompts."""
        return [text for output in self.outputs for text in output.bytes]


class Timing(NamedTuple):
    """The timing of one method.

    Attributes:
      stats: statistics summed over the prompts.
      rows: number of prompts.
      seconds: median time of a run.
      decode_seconds: median time of a run, without the prefill.
      speed: speed-up over plain decoding.
      decode_speed: speed-up over plain decoding, without the prefill.
      same_outputs: number of prompts whose output equals that of plain decoding at W = 1.
      lossless: whether the method claims to be lossless.
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
    """Times several methods in alternating runs, after compiling each.

    Args:
      model: the model.
      prompts: prompts, continued `batch` at a time.
      contestants: methods to time.
      new: number of bytes to emit for each prompt.
      repeats: number of runs of each method.
      batch: number of rows that are decoded together.
      temperature: sampling temperature of all methods.
    """
    batches = [prompts[start : start + batch] for start in range(0, len(prompts), batch)]

    # One batch of each shape compiles all there is.
    shapes = {tuple(sorted(map(len, rows))): [rows] for rows in reversed(batches)}

    def run(contestant: Contestant, batches: Sequence[Sequence[bytes]]) -> list[Output]:
        return [
            generate(
                model, rows, method=contestant.method, max_new_bytes=new, allow_eos=False,
                temperature=temperature, **({"seeds": batch * index} | contestant.settings),
            )
            for index, rows in enumerate(batches)
        ]  # fmt: skip

    for contestant in contestants:
        for alike in shapes.values():
            run(contestant, alike)
    runs = [[run(contestant, batches) for contestant in contestants] for _ in range(repeats)]
    return [_runs([repeat[index] for repeat in runs]) for index in range(len(contestants))]


def _runs(repeats: list[list[Output]]) -> Runs:
    seconds = [sum(_known(o.stats.seconds) for o in outputs) for outputs in repeats]
    prefill = [sum(_known(o.stats.prefill_seconds) for o in outputs) for outputs in repeats]
    decode = [whole - prompts for whole, prompts in zip(seconds, prefill, strict=True)]
    return Runs(repeats[-1], tuple(seconds), tuple(decode))


def _known(seconds: float | None) -> float:
    assert seconds is not None  # batches are timed, only single rows are not
    return seconds


def compare(plain: Runs, own: Runs) -> Timing:
    """Compares the runs of a method with those of plain decoding."""
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


def compare_with_plain(
    model: Model, prompts: Sequence[bytes], contestants: Sequence[Contestant], **how
) -> list[Timing]:
    """Times methods against plain decoding; `how` takes the keywords of `in_turns`."""
    plain, *others = in_turns(model, prompts, [PLAIN, *contestants], **how)
    return [compare(plain, own) for own in others]


def figures(timing: Timing) -> dict:
    """Converts a timing to JSON. Counts are means over the prompts."""
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
