"""Shows the comparison on a terminal, in colour where it is supported."""

from rich.console import Console
from rich.text import Text

from bytelax.decode.origins import Origin
from bytelax.demo import figures
from bytelax.demo.comparison import Comparison
from bytelax.demo.pieces import Piece, pieces_of

_STYLES = {
    Origin.PLAIN: "default",
    Origin.CORRECTED: "bold red",
    Origin.FREE: "yellow",
}
# Styles by the pass that drafted a byte; the last one is for all later passes.
_DRAFTED = ("green", "cyan", "bright_blue", "magenta")


def show(comparison: Comparison, *, platform: str) -> None:
    """Prints the outputs of all methods, a table of their figures, and what it shows.

    Args:
      comparison: the outputs.
      platform: name of JAX's platform, such as "cpu".
    """
    # rich omits colour if standard output is not a terminal or NO_COLOR is set.
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if console.color_system and not console.no_color:
        console.print(_legend())
    for index, prompt in enumerate(comparison.prompts):
        console.print()
        console.print(Text(prompt.decode("utf-8", "replace").rstrip(), "bold"))
        for run in comparison.runs:
            console.print()
            console.print(Text(f"  {run.setting.label}: {figures.summary(run, index)}", "dim"))
            console.print(_output(pieces_of(run.results[index])))
    console.print()
    _table(console, comparison)
    for line in (figures.EXPLAINED, *comparison.notes, figures.closing(comparison, platform)):
        console.print()
        console.print(line, soft_wrap=False)


def _style(piece: Piece) -> str:
    if piece.origin != Origin.DRAFTED:
        return _STYLES[piece.origin]
    return _DRAFTED[min(max(piece.step, 1), len(_DRAFTED)) - 1]


def _output(pieces: list[Piece]) -> Text:
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
    rows = [list(figures.COLUMNS), *(figures.row(comparison, run) for run in comparison.runs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for index, row in enumerate(rows):
        cells = (
            cell.ljust(width) if place < 2 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        console.print(Text("  ".join(cells), "bold" if index == 0 else ""))
