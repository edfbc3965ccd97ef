"""Shows the comparison on a terminal, in colour where it is supported."""

from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from bytelax import calculator
from bytelax.decode.record import Origin
from bytelax.engine.results import Result
from bytelax.measure.comparison import Comparison, Run

_STYLES = {
    Origin.PLAIN: "default",
    Origin.CORRECTED: "bold red",
    Origin.FREE: "yellow",
}
# Styles by the pass that drafted a byte; the last one is for all later passes.
_DRAFTED = ("green", "cyan", "bright_blue", "magenta")
_COLUMNS = ("method", "output", "rounds", "global", "weights", "bytes/s", "speed here")
_EXPLAINED = (
    "Per byte of output: rounds, in each of which the whole model checks its drafts in one pass; "
    "passes of the global transformer; and millions of weights read. Plain decoding makes a round "
    "for every byte."
)


class _Piece(NamedTuple):
    """A character, or a single byte that is not part of one.

    Attributes:
      text: what is shown.
      origin: provenance of that byte.
      step: drafter's pass that chose that byte, as in `Origins`.
    """

    text: str
    origin: Origin
    step: int


def show(comparison: Comparison, *, platform: str) -> None:
    """Prints the outputs of all methods, a table of their figures, and what it shows.

    Args:
      comparison: the outputs.
      platform: name of JAX's platform, such as "cpu".
    """
    # rich omits colour if standard output is not a terminal or NO_COLOR is set.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(_certain(comparison), soft_wrap=False)
    if console.color_system and not console.no_color:
        console.print(_legend())
    for index, prompt in enumerate(comparison.prompts):
        console.print()
        console.print(Text(prompt.decode("utf-8", "replace").rstrip(), "bold"))
        for run in comparison.runs:
            console.print()
            console.print(Text(f"  {run.setting.label}: {_summary(run, index)}", "dim"))
            console.print(_output(_pieces_of(run.results[index])))
    console.print()
    _table(console, comparison)
    for line in (_EXPLAINED, *comparison.notes, _closing(comparison, platform)):
        console.print()
        console.print(line, soft_wrap=False)


def _style(piece: _Piece) -> str:
    if piece.origin != Origin.DRAFTED:
        return _STYLES[piece.origin]
    return _DRAFTED[min(max(piece.step, 1), len(_DRAFTED)) - 1]


def _output(pieces: list[_Piece]) -> Text:
    text = Text("  ")
    for piece in pieces:
        text.append(piece.text.replace("\n", "\n  "), _style(piece))
    return text


def _legend() -> Text:
    text = Text("each byte: drafted and accepted, in pass ")
    for step, style in enumerate(_DRAFTED, 1):
        text.append(f"{step}{' or later' if step == len(_DRAFTED) else ''} ", style)
    text.append("| ")
    text.append("corrected", _STYLES[Origin.CORRECTED]).append(" | ")
    text.append("free", _STYLES[Origin.FREE]).append(" (behind a whole draft) | plain")
    return text


def _table(console: Console, comparison: Comparison) -> None:
    rows = [list(_COLUMNS), *(_row(comparison, run) for run in comparison.runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        cells = (
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        console.print(Text("  ".join(cells), "bold" if index == 0 else ""))


def _row(comparison: Comparison, run: Run) -> list[str]:
    """Returns the cells of one table row."""
    figures = run.stats.to_dict()
    return [
        run.setting.label,
        _verdict(run),
        _number(_each(figures["rounds"], run), ".2f"),
        _number(_each(figures["global_passes"], run), ".2f"),
        _number(_each(_weights(run) / 1e6, run), ".2f", " M"),
        _number(figures["bytes_per_second"], ".0f"),
        _number(comparison.speed(run), ".2f", "x"),
    ]


def _certain(comparison: Comparison) -> str:
    """The first sentence: what the best lossless method does on any machine."""
    plain, *others = comparison.runs
    best = next((run for run in others if run.lossless), plain)
    same = "the same bytes as" if best.same else "the bytes of"
    rounds, own = plain.stats.rounds, best.stats.rounds
    fewer = f" ({rounds / own:.1f} times fewer)" if own else ""
    return (
        f"{best.setting.label} writes {same} plain decoding, in {own} rounds instead of "
        f"{rounds}{fewer}."
    )


def _closing(comparison: Comparison, platform: str) -> str:
    """Explains in words what the table says of speed.

    Args:
      comparison: the outputs of all settings.
      platform: name of JAX's platform, such as "cpu".
    """
    plain, *others = comparison.runs
    told = "Speed is beside plain decoding on this machine, one prompt at a time."
    if others and _weights(others[0]) >= _weights(plain) and plain.stats.patches:
        told += (
            f" {others[0].setting.label} reads no fewer weights here: its drafts are passes of the "
            "local decoder, which is small beside the global transformer of a large BLT and not of "
            "this one."
        )
    if platform == "cpu":
        told += (
            " This is a processor, where the time of a pass grows with the bytes in it, so that "
            "checking drafts is not free. On an accelerator a pass over a few bytes takes the time "
            "to read its weights once: rounds and weights decide there."
        )
    return told


def _weights(run: Run) -> float:
    """Number of weights that all passes of a run read."""
    return run.stats.bandwidth_gb_with_patcher * 1e9 / calculator.BYTES_PER_WEIGHT


def _verdict(run: Run) -> str:
    """Returns in words whether the output is that of plain decoding."""
    if run.same:
        return "identical"
    if run.lossless:
        return "DIFFERS" if any(run.padded_differs) else "same but rounding"
    same = sum(place is None for place in run.first_difference)
    return f"its own ({same} of {len(run.results)} same)" if same else "its own"


def _summary(run: Run, index: int) -> str:
    """Returns the passes and the acceptance rate of one prompt in words."""
    stats = run.results[index].stats
    figures = stats.to_dict()
    encoder = stats.encoder_passes + stats.draft_encoder_passes
    line = f"{stats.bytes} bytes, {stats.decoder_passes} decoder"
    if encoder:
        line += f", {encoder} encoder, {stats.global_passes} global"
    line += " passes"
    if run.lossless and figures["acceptance"] is not None:
        line += f", {figures['acceptance']:.0%} accepted"
    place = run.first_difference[index]
    if place is not None:
        line += f", not plain decoding's from byte {place} on"
        if run.lossless and not run.padded_differs[index]:
            line += " (rounding: the same as plain decoding in windows as wide)"
    return line


def _each(number: float, run: Run) -> float | None:
    return number / run.stats.bytes if run.stats.bytes else None


def _number(value, spec, unit=""):
    return "-" if value is None else f"{value:{spec}}{unit}"


def _pieces_of(result: Result) -> list[_Piece]:
    """Splits all bytes of a result into pieces, in order. The result must have origins."""
    assert result.origins is not None
    pieces, place = [], 0
    for character in result.bytes.decode("utf-8", "surrogateescape"):
        data = character.encode("utf-8", "surrogateescape")
        is_text = character.isprintable() or character in "\n\t"
        for text in [character] if is_text else [f"\\x{byte:02x}" for byte in data]:
            kind = Origin(int(result.origins.kind[place]))
            pieces.append(_Piece(text, kind, int(result.origins.step[place])))
            place += len(data) if is_text else 1
    return pieces
