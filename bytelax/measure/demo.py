"""`bytelax demo`: the same prompts under several methods, with the provenance of each byte."""

import concurrent.futures
import dataclasses
import statistics
from collections.abc import Iterator, Sequence

import jax
from rich.console import Console
from rich.text import Text

from bytelax import calculator, methods
from bytelax.decode.record import Origin
from bytelax.model import Model
from bytelax.models.blt import BLTConfig
from bytelax.running import Output, Result, Statistics, generate

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
_STYLES = {Origin.PLAIN: "default", Origin.CORRECTED: "bold red", Origin.FREE: "yellow"}
# Styles by the pass that drafted a byte; the last one is for all later passes.
_DRAFTED = ("green", "cyan", "bright_blue", "magenta")
_COLUMNS = ("method", "output", "rounds", "global", "weights", "bytes/s", "speed here")
_EXPLAINED = (
    "Per byte of output: rounds, in each of which the whole model checks its drafts in one pass; "
    "passes of the global transformer; and millions of weights read. Plain decoding makes a round "
    "for every byte."
)
_NO_FEWER = (
    " {} reads no fewer weights here: its drafts are passes of the local decoder, which is small "
    "beside the global transformer of a large BLT and not of this one."
)
_ON_A_CPU = (
    " This is a processor, where the time of a pass grows with the bytes in it, so that checking "
    "drafts is not free. On an accelerator a pass over a few bytes takes the time to read its "
    "weights once: rounds and weights decide there."
)


@dataclasses.dataclass(frozen=True)
class Setting:
    """A method and its options."""

    method: str
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """The method and its options in words."""
        told = {"draft_length": "{} bytes", "block_size": "blocks of {}", "draft_model": "{}"}
        words = (told.get(name, "{}").format(value) for name, value in self.options.items())
        return ", ".join(["plain" if self.method == "ar" else self.method, *words])


PLAIN = Setting("ar")


@dataclasses.dataclass(frozen=True)
class Run:
    """The results of all prompts under one setting.

    Attributes:
      setting: the method and its options.
      output: in words, whether it is that of plain decoding.
      results: one per prompt, with origins.
      stats: sums over the prompts; the seconds are those of decoding, without the prefill of the
        prompts and without compilation, the median of runs in turns.
    """

    setting: Setting
    output: str
    results: list[Result]
    stats: Statistics

    @property
    def bytes_per_second(self) -> float:
        """Speed of decoding; 0 where nothing was written."""
        return self.stats.to_dict()["bytes_per_second"] or 0.0

    @property
    def weights(self) -> float:
        """Number of weights that all passes read."""
        return self.stats.bandwidth_gb_with_patcher * 1e9 / calculator.BYTES_PER_WEIGHT


def settings_of(model: Model, draft_model: str | None = None) -> tuple[list[Setting], list[str]]:
    """Returns settings that show what a model supports, and why other methods are left out.

    The first is plain decoding, and the second the best lossless method.

    Args:
      model: the model.
      draft_model: the name of a smaller model that drafts for it; None if there is none.
    """
    if draft_model is not None:
        lengths = [{"draft_model": draft_model, "draft_length": length} for length in (8, 4)]
        drafted = [Setting("draft-model", options) for options in lengths]
        return [PLAIN, *drafted, Setting("lookup", {"draft_length": 8})], []
    if not isinstance(model.config, BLTConfig):
        return _settings_of_byte_lm(model)
    settings = [PLAIN, Setting("blt-s", {"draft_length": 4})]
    if model.config.heads is not None and model.config.heads.eagle.present:
        settings.insert(1, Setting("eagle", {"draft_length": 3}))
    trained = model.config.block_size
    if trained:
        settings.append(Setting("blt-dv", {"block_size": min(8, trained), "unmask": "one-step"}))
        settings += [
            Setting("blt-d", {"block_size": trained, "unmask": unmask})
            for unmask in ("confidence", "entropy")
        ]
    return settings, []


def _settings_of_byte_lm(model: Model) -> tuple[list[Setting], list[str]]:
    settings, left_out = [PLAIN], []
    for setting in (
        Setting("eagle", {"draft_length": 3}),
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


def compare(model: Model, settings: Sequence[Setting], *, max_new_bytes: int) -> list[Run]:
    """Continues each prompt by itself under every setting, greedily; the first is `PLAIN`.

    Each setting runs once to compile, two of them at once because most of the time is spent there,
    and then in turns with the others, when nothing else is running.
    """

    def outputs_of(setting: Setting, **window) -> list[Output]:
        asked = {"method": setting.method, "max_new_bytes": max_new_bytes, "stop": STOP, **window}
        return [
            generate(model, [prompt], origins=True, **asked, **setting.options)
            for prompt in PROMPTS
        ]

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        plain, *_ = pool.map(outputs_of, settings)
    turns = [[outputs_of(setting) for setting in settings] for _ in range(TIMED)]

    def verdict(outputs: list[Output]) -> str:
        """Whether the output is that of plain decoding, or of plain decoding in wider windows."""
        same = [a.bytes == b.bytes for a, b in zip(outputs, plain, strict=True)]
        if all(same):
            return "identical"
        if not outputs[0].lossless:
            return f"its own ({sum(same)} of {len(same)} same)"
        width = 1 + len(outputs[0].stats.drafted_by_position)
        wide = outputs_of(PLAIN, window=width)
        same = [a.bytes == b.bytes for a, b in zip(outputs, wide, strict=True)]
        return "same but rounding" if all(same) else "DIFFERS"

    def seconds(outputs: list[Output]) -> float:
        stats = [output.stats for output in outputs]
        return sum((x.seconds or 0.0) - (x.prefill_seconds or 0.0) for x in stats)

    runs = []
    for setting, *timed in zip(settings, *turns, strict=True):
        outputs = timed[0]
        total = Statistics.sum([output.stats for output in outputs])
        total = total.timed(statistics.median(map(seconds, timed)), 0.0)
        results = [output.results[0] for output in outputs]
        runs.append(Run(setting, verdict(outputs), results, total))
    return runs


def show(runs: Sequence[Run], notes: Sequence[str] = ()) -> None:
    """Prints the outputs of all runs, a table of their figures, and what it shows.

    Args:
      runs: plain decoding, the best lossless method, and others.
      notes: what else is to be known, one line each.
    """
    # rich omits colour if standard output is not a terminal or NO_COLOR is set.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(_certain(*runs[:2]), soft_wrap=False)
    if console.color_system and not console.no_color:
        console.print(_legend())
    by_prompt = zip(*(run.results for run in runs), strict=True)
    for prompt, results in zip(PROMPTS, by_prompt, strict=True):
        console.print(Text(f"\n{prompt.decode().rstrip()}", "bold"))
        for run, result in zip(runs, results, strict=True):
            console.print(Text(f"\n  {run.setting.label}: {_summary(result.stats)}", "dim"))
            console.print(_coloured(result))
    console.print()
    _table(console, runs)
    for line in (_EXPLAINED, *notes, _closing(*runs[:2])):
        console.print()
        console.print(line, soft_wrap=False)


def _legend() -> Text:
    text = Text("each byte: drafted and accepted, in pass ")
    for step, style in enumerate(_DRAFTED, 1):
        text.append(f"{step}{' or later' if step == len(_DRAFTED) else ''} ", style)
    text.append("| ").append("corrected", _STYLES[Origin.CORRECTED]).append(" | ")
    text.append("free", _STYLES[Origin.FREE]).append(" (behind a whole draft) | plain")
    return text


def _coloured(result: Result) -> Text:
    """The text of a result, each character in the colour of its first byte's origin."""
    assert result.origins is not None
    text = Text("  ")
    for place, shown in _characters(result.bytes):
        origin, step = Origin(int(result.origins.kind[place])), int(result.origins.step[place])
        drafted = _DRAFTED[min(max(step, 1), len(_DRAFTED)) - 1]
        style = drafted if origin == Origin.DRAFTED else _STYLES[origin]
        text.append(shown.replace("\n", "\n  "), style)
    return text


def _characters(text: bytes) -> Iterator[tuple[int, str]]:
    """Yields the index of the first byte of each character; what is no text is in hexadecimal."""
    place = 0
    for character in text.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        if character.isprintable() or character in "\n\t":
            yield place, character
        else:
            yield from ((place + i, f"\\x{byte:02x}") for i, byte in enumerate(data))
        place += len(data)


def _table(console: Console, runs: Sequence[Run]) -> None:
    rows = [list(_COLUMNS), *(_row(run, runs[0]) for run in runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        cells = (
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        console.print(Text("  ".join(cells), "bold" if index == 0 else ""))


def _row(run: Run, plain: Run) -> list[str]:
    stats, written = run.stats, max(run.stats.bytes, 1)
    return [
        run.setting.label,
        run.output,
        f"{stats.rounds / written:.2f}",
        f"{stats.global_passes / written:.2f}",
        f"{run.weights / 1e6 / written:.2f} M",
        f"{run.bytes_per_second:.0f}",
        f"{run.bytes_per_second / (plain.bytes_per_second or 1):.2f}x",
    ]


def _certain(plain: Run, best: Run) -> str:
    """The first sentence: what the best lossless method does on any machine."""
    same = "the same bytes as" if best.output == "identical" else "the bytes of"
    rounds, own = plain.stats.rounds, best.stats.rounds
    fewer = f" ({rounds / own:.1f} times fewer)" if own else ""
    return (
        f"{best.setting.label} writes {same} plain decoding, in {own} rounds instead of "
        f"{rounds}{fewer}."
    )


def _closing(plain: Run, best: Run) -> str:
    """Explains in words what the table says of speed."""
    told = "Speed is beside plain decoding on this machine, one prompt at a time."
    if best.weights >= plain.weights and plain.stats.patches:
        told += _NO_FEWER.format(best.setting.label)
    return told + (_ON_A_CPU if jax.default_backend() == "cpu" else "")


def _summary(stats: Statistics) -> str:
    """The passes and the acceptance rate of one prompt in words."""
    line = f"{stats.bytes} bytes, {stats.decoder_passes} decoder"
    if encoder := stats.encoder_passes + stats.draft_encoder_passes:
        line += f", {encoder} encoder, {stats.global_passes} global"
    kept = f", {stats.accepted / stats.drafted:.0%} accepted" if stats.drafted else ""
    return f"{line} passes{kept}"
