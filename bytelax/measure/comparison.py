"""Runs the same prompts under methods that a model supports."""

import base64
import concurrent.futures
import dataclasses
import statistics
from collections.abc import Sequence

from bytelax import methods
from bytelax.engine.results import Output, Result, Statistics
from bytelax.generation import generate
from bytelax.model import Model
from bytelax.models.blt import BLTConfig

# Short tasks, after which a model as small as `tiny` stops by itself. Its greedy continuations of
# open prose soon repeat a phrase for ever, which any drafter predicts: such figures flatter.
PROMPTS = (
    "de: Warum bist du so spät nach Hause gekommen?\nen: ".encode(),
    b"for i in range(len(values)):\n        if ",
    b"fr: Nous avons besoin de plus de temps.\nen: ",
    b"    if not isinstance(value, str):\n        raise ",
    b"de: Ich glaube nicht, dass das eine gute Idee ist.\nen: ",
)
STOP = (b"\n\n",)
TIMED = 3  # runs of each setting, in turns


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method and its options."""

    method: str
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method and its options in words."""
        options = self.options.copy()
        parts = ["plain" if self.method == "ar" else self.method]
        for name, words in (("draft_length", "{} bytes"), ("block_size", "blocks of {}")):
            if name in options:
                parts.append(words.format(options.pop(name)))
        return ", ".join([*parts, *map(str, options.values())])


@dataclasses.dataclass(frozen=True)
class Run:
    """The results of all prompts under one setting.

    Attributes:
      setting: the method and its options.
      lossless: whether the output is meant to be that of plain decoding.
      results: one per prompt, with origins.
      stats: sums over the prompts; the seconds are those of decoding, without the prefill of the
        prompts and without compilation, the median of runs in turns.
      first_difference: for each prompt, index of the first byte that differs from plain decoding,
        or None.
      padded_differs: for each prompt, whether the output also differs from plain decoding in
        windows of this method's width. Checked only if a lossless method differs, because rounding
        may break a tie differently in windows of another width.
    """

    setting: Setting
    lossless: bool
    results: list[Result]
    stats: Statistics
    first_difference: list[int | None]
    padded_differs: list[bool]

    @property
    def same(self) -> bool:
        """Whether all outputs equal those of plain decoding."""
        return all(place is None for place in self.first_difference)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The outputs of all settings on the same prompts.

    Attributes:
      prompts: the prompts.
      runs: one per setting, plain decoding first and then the best lossless method.
      notes: what else is to be known, such as why a method is missing, one line each.
    """

    prompts: Sequence[bytes]
    runs: list[Run]
    notes: list[str]

    @property
    def plain(self) -> Run:
        """The run of plain decoding."""
        return self.runs[0]

    def speed(self, run: Run) -> float | None:
        """Returns the speed-up of a run over plain decoding, in bytes per second."""
        ours, plain = (_bytes_per_second(x.stats) for x in (run, self.plain))
        return ours / plain if ours and plain else None


PLAIN = Setting("ar")


def settings_of(model: Model) -> tuple[list[Setting], list[str]]:
    """Returns settings that show what a model supports, and why other methods are left out.

    The first is plain decoding, and the second the best lossless method.
    """
    if not isinstance(model.config, BLTConfig):
        return _settings_of_byte_lm(model)
    settings = [PLAIN, Setting("blt-s", {"draft_length": 4})]
    if model.config.heads is not None and model.config.heads.draft_layer:
        settings.insert(1, Setting("eagle", {"draft_length": 8}))
    trained = model.config.block_size
    if not trained:
        return settings, []
    settings.append(Setting("blt-dv", {"block_size": min(8, trained), "unmask": "one-step"}))
    settings += [
        Setting("blt-d", {"block_size": trained, "unmask": unmask})
        for unmask in ("confidence", "entropy")
    ]
    return settings, []


def _settings_of_byte_lm(model: Model) -> tuple[list[Setting], list[str]]:
    settings, left_out = [PLAIN], []
    for setting in (
        Setting("eagle"),
        Setting("medusa"),
        Setting("composed"),
        Setting("early-exit", {"draft_length": 4}),
        Setting("lookup", {"draft_length": 8}),
    ):
        try:
            methods.build(setting.method, model, **setting.options)
            settings.append(setting)
        except ValueError as error:
            left_out.append(f"{setting.method}: left out, {error}")
    return settings, left_out


def compare(
    model: Model,
    prompts: Sequence[bytes],
    *,
    max_new_bytes: int,
    stop: Sequence[bytes] = (),
) -> Comparison:
    """Continues each prompt by itself under every setting, greedily.

    Each setting runs once to compile, two of them at once because most of the time is spent there,
    and then in turns with the others, when nothing else is running.
    """
    settings, left_out = settings_of(model)
    limits = {"max_new_bytes": max_new_bytes, "stop": stop}
    requests = [{"method": x.method, "origins": True, **limits, **x.options} for x in settings]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first = list(pool.map(lambda request: _one_by_one(model, prompts, **request), requests))
    turns = [[_one_by_one(model, prompts, **request) for request in requests] for _ in range(TIMED)]
    plain = [output.results[0].bytes for output in first[0]]
    runs: list[Run] = []
    for setting, compiled, *timed in zip(settings, first, *turns, strict=True):
        outputs = timed[0]
        results = [output.results[0] for output in outputs]
        differs = [_first_difference(a.bytes, b) for a, b in zip(results, plain, strict=True)]
        lossless = outputs[0].lossless
        padded_differs = [place is not None for place in differs]
        if lossless and any(padded_differs):
            width = 1 + len(results[0].stats.drafted_by_position)
            padded = _one_by_one(model, prompts, method="ar", window=width, **limits)
            padded_differs = [a.bytes != b.bytes[0] for a, b in zip(results, padded, strict=True)]
        compiling = sum(output.stats.compile_seconds or 0.0 for output in compiled)
        decoding = statistics.median(map(_decode_seconds, timed))
        total = Statistics.sum([output.stats for output in outputs]).timed(decoding, compiling)
        runs.append(Run(setting, lossless, results, total, differs, padded_differs))
    return Comparison(prompts, runs, left_out)


def to_json(comparison: Comparison) -> dict:
    """Converts a comparison to the JSON that `--json` prints."""
    return {
        "prompts": [prompt.decode("utf-8", "replace") for prompt in comparison.prompts],
        "methods": [_run_to_json(comparison, run) for run in comparison.runs],
        "notes": comparison.notes,
    }


def _run_to_json(comparison, run):
    return {
        "method": run.setting.method,
        "options": run.setting.options,
        "lossless": run.lossless,
        "speed": comparison.speed(run),
        "same_as_plain": run.same,
        "stats": run.stats.to_dict(),
        "results": [
            {
                "text": result.text,
                "base64": base64.b64encode(result.bytes).decode("ascii"),
                "stop": result.stop,
                "first_difference": place,
                "same_as_padded_plain": not padded_differs,
                "origins": result.origins.names,
                "steps": result.origins.step.tolist(),
                "stats": result.stats.to_dict(),
            }
            for result, place, padded_differs in zip(
                run.results, run.first_difference, run.padded_differs, strict=True
            )
        ],
    }


def _one_by_one(model: Model, prompts: Sequence[bytes], **request) -> list[Output]:
    """Continues each prompt in a batch of its own, as for a single user."""
    return [generate(model, [prompt], **request) for prompt in prompts]


def _decode_seconds(outputs: list[Output]) -> float:
    return sum((x.stats.seconds or 0.0) - (x.stats.prefill_seconds or 0.0) for x in outputs)


def _first_difference(output: bytes, plain: bytes) -> int | None:
    if output == plain:
        return None
    pairs = zip(output, plain, strict=False)
    shorter = min(len(output), len(plain))
    return next((place for place, (a, b) in enumerate(pairs) if a != b), shorter)


def _bytes_per_second(stats: Statistics) -> float | None:
    return stats.to_dict()["bytes_per_second"]
