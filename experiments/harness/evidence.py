"""What a figure of acceptance or speed rests on: 64 natural prompts of five genres.

Counts (bytes per round, passes, weights read) are of all prompts, in batches: a row's counts do not
depend on the others. Every figure has an interval over prompts, and one of bytes per round leaves
out the continuations that loop, because a loop is easy to draft. Bytes per second are of one row at
a time, on a few prompts of every genre.
"""

import argparse
import json
import math
import pathlib
from collections.abc import Sequence

import experiments
from bytelax.engine.results import Result, Statistics
from bytelax.generation import generate
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.model import Model
from bytelax.scoring import score_continuations
from experiments.harness import bundled_data, intervals, loops, study

PROMPTS = 64
BATCH = 16  # rows that are counted together
TIMED = 2  # prompts of each genre that are timed
REPEATS = 5  # of what is timed, in turns

_STUDIES = pathlib.Path(experiments.__file__).parent
_BUNDLED = _STUDIES / "training" / "bundled" / "results.json"
_METHODS = _STUDIES / "speed" / "blt_methods" / "results.json"
_LATENTS = _STUDIES / "speed" / "latents" / "results.json"
# What the pages say of the columns that come from here.
LEGEND = (
    "- In brackets: 95 % intervals from resampling prompts.",
    "- Loops: continuations whose end repeats a stretch three times. A loop is easy to draft, so a "
    "column leaves them out.",
    "- Acceptance: bytes kept, of all that were drafted.",
)


def add_options(parser: argparse.ArgumentParser, *, new: int, timed: bool = True) -> None:
    """Adds the options that say how much text a study reads and writes, with their defaults.

    Args:
      parser: from `study.parser`.
      new: bytes generated a prompt.
      timed: whether the study times anything.
    """
    parser.add_argument("--prompts", type=int, default=PROMPTS)
    parser.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    parser.add_argument("--new", type=int, default=new, help="bytes generated a prompt")
    parser.add_argument(
        "--split", choices=bundled_data.SPLITS, default=bundled_data.TEST,
        help="files that the prompts are from; defaults are chosen on the valid split",
    )  # fmt: skip
    if timed:
        parser.add_argument("--repeats", type=int, default=REPEATS)


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line of a study with `add_options`; a trial run takes a few bytes."""
    options = parser.parse_args()
    if options.smoke:
        options.prompts, options.context, options.new = 5, 48, 8
        if "repeats" in options:
            options.repeats = 1
    return options


def prompts(options: argparse.Namespace) -> list[tuple[str, bytes]]:
    """Genre and text of each prompt that the options of a study ask for."""
    return bundled_data.prompts(options.data, options.prompts, options.context, options.split)


def measured_on(options: argparse.Namespace, texts: Sequence[tuple[str, bytes]]) -> dict:
    """What the report says of the texts, and of timing where the study times."""
    said = {
        "prompts": len(texts), "prompt_bytes": options.context, "new": options.new,
        "split": options.split,
    }  # fmt: skip
    if "repeats" in options:
        said |= {"repeats": options.repeats, "timed": len(few(texts))}
    return said


def decoded(
    model: Model,
    texts: Sequence[bytes],
    contestant: Contestant,
    *,
    new: int,
    temperature: float,
    batch: int = BATCH,
) -> list[Result]:
    """Continues all texts, `batch` at a time; the seed of a text is its place."""
    results = []
    for start in range(0, len(texts), batch):
        results += generate(
            model, texts[start : start + batch], method=contestant.method, max_new_bytes=new,
            allow_eos=False, temperature=temperature, seeds=start, **contestant.settings,
        ).results  # fmt: skip
    return results


def figures(results: Sequence[Result]) -> dict:
    """Figures over prompts, with intervals: of all of them, and of those that do not loop."""
    rows = [result.stats for result in results]
    looping = [loops.period(result.bytes) is not None for result in results]
    apart = [row for row, loop in zip(rows, looping, strict=True) if not loop]
    total = Statistics.total(rows).to_dict()
    return {
        "bytes_per_round": ratio(rows, "bytes", "rounds"),
        "bytes_per_round_without_loops": ratio(apart, "bytes", "rounds"),
        "loops": sum(looping),
        "kept_per_round": ratio(rows, "accepted", "rounds"),
        "kept_per_round_without_loops": ratio(apart, "accepted", "rounds"),
        "acceptance": ratio(rows, "accepted", "drafted"),
        "acceptance_without_loops": ratio(apart, "accepted", "drafted"),
        "acceptance_by_position": total["acceptance_by_position"],
        "bytes_per_patch": total["bytes_per_patch"],
        "global_passes_per_byte": ratio(rows, "global_passes", "bytes"),
        "draft_passes_per_byte": ratio(rows, "draft_model_passes", "bytes"),
        "decoder_passes_per_byte": ratio(rows, "decoder_passes", "bytes"),
        "encoder_passes_per_byte": ratio(rows, "encoder_passes", "bytes"),
        "published_gb_per_byte": ratio(rows, "bandwidth_gb", "bytes"),
        "gb_per_byte": ratio(rows, "bandwidth_gb_with_patcher", "bytes"),
    }


def ratio(rows: Sequence[Statistics], above: str, below: str) -> dict | None:
    """The ratio of two sums over prompts, with its interval; None without prompts."""
    if not rows:
        return None
    return intervals.of_ratio(*([getattr(row, name) for row in rows] for name in (above, below)))


def by_genre(results: Sequence[Result], genres: Sequence[str]) -> dict:
    """Bytes per round of each genre."""
    rows = [result.stats for result in results]
    return {
        genre: ratio(
            [row for row, own in zip(rows, genres, strict=True) if own == genre], "bytes", "rounds"
        )
        for genre in dict.fromkeys(genres)
    }


def same_outputs(results: Sequence[Result], plain: Sequence[Result]) -> int:
    """Number of prompts that two methods continue with the same bytes."""
    return sum(own.bytes == other.bytes for own, other in zip(results, plain, strict=True))


def bits_per_byte(model: Model, prompts: Sequence[bytes], results: Sequence[Result]) -> dict:
    """Bits per byte of continuations under a model at temperature 1, with an interval."""
    written = [result.bytes for result in results]
    pairs = list(zip(prompts, written, strict=True))
    scored = score_continuations(model, pairs, batch=BATCH)
    return intervals.of_ratio(
        [-each.log_prob / math.log(2) for each in scored], [len(text) for text in written]
    )


def few(texts: Sequence[tuple[str, bytes]], each: int = TIMED) -> list[bytes]:
    """`each` texts of every genre, evenly spread over those of the genre."""
    chosen = []
    for genre in dict.fromkeys(genre for genre, _ in texts):
        own = [text for other, text in texts if other == genre]
        chosen += own[:: max(len(own) // each, 1)][:each]
    return chosen


def speed(
    model: Model, texts: Sequence[bytes], contestant: Contestant, *, temperature: float, **how
) -> dict:
    """Bytes per second of one row at a time, in alternation with plain decoding.

    Args:
      model: the model.
      texts: from `few`.
      contestant: the method and its settings.
      temperature: of both.
      **how: `new` and `repeats`, as in `timing.in_turns`.
    """
    plain, own = timing.in_turns(
        model, texts, [PLAIN, contestant], temperature=temperature, **how
    )  # fmt: skip
    found = timing.figures(timing.beside(plain, own))
    kept = ("decode_bytes_per_second", "decode_speed", "decode_speed_range", "lossless")
    return {name: found[name] for name in kept}


def conditions(report: dict, weights: str = "float32") -> str:
    """The sentence on the texts and the machine."""
    split = f" of the {report['split']} files" if "split" in report else ""  # older ones: valid
    return (
        f"{report['prompts']} held-out prompts{split} of {report['prompt_bytes']} bytes over five "
        f"genres, {report['new']} new bytes, {study.machine(report, weights)}."
    )


def latents() -> str:
    """The line on whether the bundled BLTs need what their latents say, from their own study."""
    costs = {
        name: figures["mean"]
        for name, figures in json.loads(_BUNDLED.read_text())["latents"].items()
    }
    told = ", ".join(f"{cost:.2f} for `{name}`" for name, cost in costs.items())
    return f"- One mean vector in place of all latents costs bits per byte: {told}."


def timed(report: dict) -> str:
    """The line on what was timed, and how."""
    return (
        f"- Speed: median of {report['repeats']} ratios to plain decoding (W = 1, with caches) "
        f"beside it, and their range; one row at a time, on {report['timed']} of the prompts, "
        "without the time that the prompt takes."
    )


def of_a_blt(**setting) -> dict:
    """The row of the study of the methods of a BLT that was measured with just this setting."""
    rows = json.loads(_METHODS.read_text())["rows"]
    (row,) = [row for row in rows if row["setting"] == setting]
    return row


def latents_of_drafts(temperature: float) -> dict[tuple[str, int], dict]:
    """Rows of the study of latents, by what a draft reads and its length."""
    return {
        (row["setting"]["latents"], row["setting"]["draft_length"]): row
        for row in json.loads(_LATENTS.read_text())["rows"]
        if row["setting"]["temperature"] == temperature
    }


def warning(report: dict) -> list[str]:
    """Lines in front of a page that is no evidence."""
    if report["prompts"] >= PROMPTS:
        return []
    return [f"**A trial run of the study: a figure takes {PROMPTS} prompts.**", ""]
