"""Renders the comparison as one self-contained HTML page, without scripts or downloads."""

import html
import importlib.resources

from bytelax.decode.origins import Origin
from bytelax.demo import figures
from bytelax.demo.comparison import Comparison, Run
from bytelax.demo.pieces import Piece, pieces_of

_TOLD = {
    Origin.PLAIN: "plain: nothing was drafted",
    Origin.CORRECTED: "corrected: the model's own byte for a refused one",
    Origin.FREE: "free: the model's own byte behind a whole draft",
}
_HUES = 6  # passes with a colour of their own; later ones share the last
_TITLE = "Where each byte came from"


def render(comparison: Comparison, *, platform: str) -> str:
    """Returns the HTML of the page.

    Args:
      comparison: the outputs of all settings.
      platform: name of JAX's platform, such as "cpu".
    """
    style = importlib.resources.files("bytelax.demo").joinpath("page.css").read_text("utf-8")
    prompts = "".join(_prompt(comparison, index) for index in range(len(comparison.prompts)))
    told = (figures.closing(comparison, platform), figures.EXPLAINED, *comparison.notes)
    notes = "".join(f"<p class=note>{html.escape(line)}</p>" for line in told)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>bytelax: {_TITLE.lower()}</title><style>\n{style}</style></head><body><main>\n"
        f"<header><h1>bytelax</h1><p>{_TITLE}: the same prompts, decoded greedily by methods "
        "of one model. Point at a character to see its origin.</p></header>\n"
        f"{_table(comparison)}{notes}{_legend()}{prompts}</main></body></html>\n"
    )


def _table(comparison: Comparison) -> str:
    head = "".join(f"<th>{name}</th>" for name in figures.COLUMNS)
    most = max(run.stats.rounds for run in comparison.runs) or 1
    body = ""
    for run in comparison.runs:
        label, *cells = (html.escape(cell) for cell in figures.row(comparison, run))
        share = run.stats.rounds / most
        bar = f'<i class="bar" style="width:{share:.1%}"></i>'
        body += f"<tr><th>{label}{bar}</th>" + "".join(f"<td>{x}</td>" for x in cells) + "</tr>\n"
    return (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>'
        "</div>\n"
    )


def _legend() -> str:
    passes = "".join(
        f'<b class="d d{step}">{step}{"+" if step == _HUES else ""}</b>'
        for step in range(1, _HUES + 1)
    )
    own = "".join(
        f'<li><b class="{origin.name.lower()}">{name}</b> {rest}</li>'
        for origin, (name, rest) in ((origin, told.split(":", 1)) for origin, told in _TOLD.items())
    )
    return f'<ul class="legend"><li>{passes} drafted in that pass, and kept</li>{own}</ul>\n'


def _prompt(comparison: Comparison, index: int) -> str:
    prompt = html.escape(comparison.prompts[index].decode("utf-8", "replace").rstrip())
    cards = "".join(_card(run, index) for run in comparison.runs)
    return (
        f'<section><pre class="prompt">{prompt}</pre>\n<div class="cards">{cards}</div></section>'
    )


def _card(run: Run, index: int) -> str:
    # No newlines between the tags: every newline in the <pre> is a byte of the output.
    cells = "".join(map(_cell, pieces_of(run.results[index])))
    label, summary = html.escape(run.setting.label), html.escape(figures.summary(run, index))
    # HTML parsers drop a newline right after <pre>, so add one for them.
    return f"<article><h2>{label}</h2><p>{summary}</p><pre>\n{cells}</pre></article>\n"


def _cell(piece: Piece) -> str:
    kind, told = piece.origin.name.lower(), _TOLD.get(piece.origin, "")
    if piece.origin == Origin.DRAFTED:
        kind, told = f"d d{min(max(piece.step, 1), _HUES)}", "drafted and accepted"
        if piece.step:
            told = f"drafted in pass {piece.step}, and accepted"
    return (
        f'<b class="{kind}" data-o="byte {piece.place}, {html.escape(told)}">'
        f"{html.escape(piece.text)}</b>"
    )
