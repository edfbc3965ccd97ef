"""The README's figure: who wrote each byte, above a time line of plain and drafted decoding."""

import ast
import html
import itertools
import pathlib
import re

from experiments import study
from experiments.study import RESULTS

WIDTH, LEFT, LINE, CELL = 860, 16, 21, 8.2
COLUMNS = 100  # characters in a line
BAR, STEP = 22, 38  # heights of a bar, and of a bar with its label
COLOURS = {"d": "#1a7f37", "c": "#cf222e", "f": "#9a6700"}
WORDS = {
    "d": "drafted and kept",
    "c": "the model's own, for a refused byte",
    "f": "its own, after a whole draft",
}


def svg(results: pathlib.Path = RESULTS) -> str:
    """The figure, made from rows of `provenance` and the times of `small_lm`."""
    (report,) = study.reports("provenance", results)
    rows = report["rows"]
    setting = {
        "model": "small-lm", "method": "draft-model", "dtype": "float32", "temperature": 0.0,
        "options": rows[0]["setting"]["options"],
    }  # fmt: skip
    # Of the first machine that has timed it: a second one changes nothing.
    timed, price = next(
        (report, row)
        for report in study.reports("small_lm", results)
        for row in report["rows"]
        if setting.items() <= row["setting"].items()
    )
    byte = price["plain_ms"]
    round_ = byte * price["bytes_per_round"]["value"] / price["speed"]["value"]
    bytes_, rounds = (sum(row[count] for row in rows) for count in ("bytes", "rounds"))
    lines = [line for row in rows for line in _lines(row)]
    drawn = []
    for place, line in enumerate(lines):
        drawn.append(_text(LEFT, LINE * (place + 1.2), "".join(map(_span, _merged(line)))))
    top = LINE * (len(lines) + 1.2)
    x = float(LEFT)
    for kind, words in WORDS.items():
        drawn.append(f'<rect x="{x}" y="{top - 9}" width="10" height="10" fill="{COLOURS[kind]}"/>')
        drawn.append(_text(x + 15, top, words, "label"))
        x += 40 + 6.4 * len(words)
    scale = (WIDTH - 2 * LEFT) / (byte * bytes_)
    faster = f", {byte * bytes_ / (round_ * rounds):.1f} times as fast"
    bars = (
        ("plain decoding", bytes_, byte, "#57606a", ""),
        ("with drafts of 4 bytes", rounds, round_, COLOURS["d"], faster),
    )
    for name, count, each, colour, more in bars:
        top += STEP
        told = f"{name}: {count} passes of the model, {count * each / 1000:.1f} s{more}"
        drawn.append(_text(LEFT, top - 6, told, "label"))
        drawn += [
            f'<rect x="{LEFT + scale * each * i:.2f}" y="{top}" width="{scale * each - 0.6:.2f}" '
            f'height="{BAR}" fill="{colour}"/>'
            for i in range(count)
        ]
        top += 8
    processor = re.sub(r" \(.*", "", timed["machine"])
    told = (
        f"{setting['model']}, one text at a time, greedy, float32, on two threads of an "
        f"{processor}; prompts in grey"
    )
    drawn.append(_text(LEFT, top + STEP, told, "label"))
    height = top + STEP + 12
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">\n'
        "<title>Who wrote each byte, and how long it took</title>\n"
        "<style>text{font:13.5px monospace;white-space:pre}.label{font:12px sans-serif;"
        "fill:#57606a}</style>\n"
        '<rect width="100%" height="100%" rx="8" fill="#f6f8fa"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def _lines(row: dict) -> list[list[tuple[str, str]]]:
    """A prompt and its continuation as lines of characters with their kinds, "p" for the prompt."""
    prompt, text = (ast.literal_eval(row["written"][part]) for part in ("prompt", "text"))
    if not text.isascii():
        raise ValueError("a byte of the figure's text is a character")
    kinds = iter("p" * len(prompt) + row["origins"])
    cells = list(zip(prompt + text, kinds, strict=True))
    lines = []
    for paragraph in (prompt + text).split("\n"):
        own, cells = cells[: len(paragraph)], cells[len(paragraph) + 1 :]
        for part in re.findall(rf".{{1,{COLUMNS}}}(?: |$)", paragraph):
            lines.append(own[: len(part)])
            own = own[len(part) :]
    return lines


def _merged(line: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Runs of characters of one kind."""
    return [
        ("".join(character for character, _ in run), kind)
        for kind, run in itertools.groupby(line, key=lambda cell: cell[1])
    ]


def _span(run: tuple[str, str]) -> str:
    text, kind = run
    return f'<tspan fill="{COLOURS.get(kind, "#8c959f")}">{html.escape(text)}</tspan>'


def _text(x: float, y: float, inside: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ' xml:space="preserve"'
    return f'<text x="{x:g}" y="{y:g}"{named}>{inside}</text>'
