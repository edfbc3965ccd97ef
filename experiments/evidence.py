"""What a figure of acceptance or speed rests on: 64 natural prompts of five genres.

Counts (bytes per round, passes, weights read) are of all prompts, in batches: a row's counts do not
depend on the others. Every figure has an interval over prompts, and one of bytes per round without
the continuations that loop, because a loop is easy to draft. Bytes per second are of one row at a
time, on a few prompts of every genre.
"""

import argparse
import functools
from collections.abc import Sequence

from bytelax import Result, Statistics, generate, load
from bytelax.measure import timing
from bytelax.measure.timing import PLAIN, Contestant
from bytelax.model import Model
from bytelax.options import METHODS
from experiments import study
from experiments.harness import bundled_data, intervals, loops, published_fast_blt
from experiments.study import Column

PROMPTS = 64
BATCH = 16  # rows that are counted together
TIMED = 2  # prompts of each genre that are timed
REPEATS = 5  # of what is timed, in turns
SMALL = "tiny-draft"
TEMPERATURES = (0.0, 1.0)
DTYPES = ("float32", "bfloat16")

SETTING = [
    Column("model", "model"),
    Column("method", "method"),
    Column("options", "options"),
    Column("T", "temperature", "g"),
]
COUNTED = [
    Column("bytes per round", "bytes_per_round", ".2f"),
    Column("without loops", "bytes_per_round_without_loops", ".2f"),
    Column("loops", "loops"),
    Column("acceptance", "acceptance", ".1%"),
    Column("published acceptance", "published_acceptance"),
    Column("weights read, over plain", "weights_read", ".2f"),
]
TIMED_COLUMNS = [
    Column("plain, ms per byte", "plain_ms", ".3f"),
    Column("speed", "speed", ".2f"),
    Column("same output", "same_outputs"),
    Column("lossless", "lossless"),
]

Texts = list[tuple[str, bytes]]  # genre and prompt


def parser(doc: str, *, new: int, timed: bool = True) -> study.Parser:
    """A study's parser, with the options that say how much text it reads and writes.

    Args:
      doc: the docstring of the study.
      new: bytes generated for each prompt.
      timed: whether the study times anything.
    """
    options = study.parser(doc)
    options.add_argument("--prompts", type=int, default=PROMPTS)
    options.add_argument("--context", type=int, default=128, help="bytes of a prompt")
    options.add_argument("--new", type=int, default=new, help="bytes generated for each prompt")
    options.add_argument(
        "--split", choices=bundled_data.SPLITS, default=bundled_data.TEST,
        help="files that the prompts are from; defaults are chosen on the valid split",
    )  # fmt: skip
    if timed:
        options.add_argument("--repeats", type=int, default=REPEATS)
    return options


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parses the command line; a trial run takes a few bytes."""
    options = parser.parse_args()
    if options.smoke:
        options.prompts, options.context, options.new = 5, 48, 8
        if "repeats" in options:
            options.repeats = 1
    return options


def prompts(options: argparse.Namespace) -> Texts:
    """Genre and text of each prompt that the options ask for."""
    return bundled_data.prompts(options.data, options.prompts, options.context, options.split)


def conditions(options: argparse.Namespace, **more) -> dict:
    """What a report says of its texts, and of timing where the study times."""
    own = {
        "prompts": options.prompts, "prompt_bytes": options.context, "new_bytes": options.new,
        "split": options.split,
    }  # fmt: skip
    return own | ({"repeats": options.repeats} if "repeats" in options else {}) | more


loaded = functools.cache(load)


def contestant(
    method: str, options: dict, dtype: str = "float32", quantize: str | None = None
) -> Contestant:
    """A method and its options; those that take a draft model get it by name, or `SMALL`."""
    if method not in ("draft-model", "spectr"):
        return Contestant(method, options)
    small = loaded(options.get("draft_model", SMALL), dtype=dtype, quantize=quantize)
    return Contestant(method, options | {"draft_model": small})


def drafted(
    setting: dict, texts: Texts, options: argparse.Namespace, *, timed: bool = True
) -> dict:
    """The row of a method on a model: counts of all prompts, and its speed on a few.

    Args:
      setting: `model`, `method`, `options` and `temperature`, `dtype` if it is not float32, and
        `draft_quantize` if the draft model is loaded so.
      texts: of `prompts`.
      options: of the study.
      timed: whether to time it.
    """
    dtype, temperature = setting.get("dtype", "float32"), setting["temperature"]
    model = loaded(setting["model"], dtype=dtype)
    quantize = setting.get("draft_quantize")
    own = contestant(setting["method"], setting["options"], dtype, quantize)
    stems = tuple(text for _, text in texts)
    how = {"new": options.new, "temperature": temperature}
    found = decoded(model, stems, own, **how)
    plain = plainly(model, stems, options.new, temperature)
    row = counts(setting, found, plain)
    if timed:
        row |= speed(model, few(texts), own, repeats=options.repeats, **how)
    if not row["lossless"]:
        row |= {"acceptance": None, "same_outputs": None}
    return row


def counts(setting: dict, found: Sequence[Result], plain: Sequence[Result]) -> dict:
    """The figures of a setting's row that take no clock, beside plain decoding of its prompts."""
    return figures(found) | {
        **published_fast_blt.shown(setting["method"], setting["options"]),
        "lossless": METHODS[setting["method"]].lossless,
        "weights_read": beside(found, plain, "bandwidth_gb_with_patcher"),
        "weights_by_formula": beside(found, plain, "bandwidth_gb"),
        "same_outputs": None if setting["temperature"] else same_outputs(found, plain),
    }


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


_plain: dict[tuple, tuple[Model, list[Result]]] = {}  # a model that is kept keeps its id


def plainly(model: Model, texts: tuple[bytes, ...], new: int, temperature: float) -> list[Result]:
    """Plain decoding of all texts; computed once for a model."""
    key = (id(model), texts, new, temperature)
    if key not in _plain:
        _plain[key] = model, decoded(model, texts, PLAIN, new=new, temperature=temperature)
    return _plain[key][1]


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
        "kept_per_round_without_loops": ratio(apart, "accepted", "rounds"),
        "acceptance": ratio(rows, "accepted", "drafted"),
        "acceptance_without_loops": ratio(apart, "accepted", "drafted"),
        "acceptance_by_position": total["acceptance_by_position"],
        "bytes_per_patch": total["bytes_per_patch"],
    }


def ratio(rows: Sequence[Statistics], above: str, below: str) -> dict | None:
    """The ratio of two sums over prompts, with its interval; None without prompts."""
    if not rows:
        return None
    return intervals.of_ratio(*([getattr(row, name) for row in rows] for name in (above, below)))


def beside(own: Sequence[Result], plain: Sequence[Result], name: str) -> dict | None:
    """A count of a method over that of plain decoding of the same prompts."""
    return intervals.of_ratio(
        *([getattr(each.stats, name) for each in results] for results in (own, plain))
    )


def same_outputs(results: Sequence[Result], plain: Sequence[Result]) -> int:
    """Number of prompts that two methods continue with the same bytes."""
    return sum(own.bytes == other.bytes for own, other in zip(results, plain, strict=True))


def few(texts: Texts, each: int = TIMED) -> list[bytes]:
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
    plain, own = timing.in_turns(model, texts, [PLAIN, contestant], temperature=temperature, **how)
    found = timing.compare(plain, own)
    seconds = timing.compare(plain, plain).decode_seconds
    return {
        "plain_ms": 1e3 * seconds / plain.stats.bytes,
        "speed": study.spread(*found.decode_speed),
    }
