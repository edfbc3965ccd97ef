"""`bytelax demo`: the same text by plain and by drafted decoding, side by side."""

import statistics
from collections.abc import Iterator

from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from bytelax import methods
from bytelax.decode.record import Origin
from bytelax.measure import timing
from bytelax.measure.timing import Contestant, Runs
from bytelax.model import Model
from bytelax.running import Result

# A small model soon repeats a phrase for ever, which is easy to draft: so the texts are short.
PROMPTS = (
    b"The heart pumps blood ",
    b"A good teacher ",
    b"An economy grows when ",
    b"for i in range(len(values)):\n    if ",
)
NEW = 96  # bytes of each text, at most
STOP = (b"\n\n",)
_REPEATS = 3
_SHOWN = {"stop": STOP, "origins": True}
_WIDTH = 80
_STYLES = {
    Origin.DRAFTED: "green",
    Origin.CORRECTED: "bold red",
    Origin.FREE: "yellow",
    Origin.PLAIN: "default",
}
_DRAFTERS = (
    Contestant("eagle", {"draft_length": 3}),
    Contestant("medusa", {}),
    Contestant("blt-s", {"draft_length": 4}),
    Contestant("blt-dv", {"unmask": "one-step"}),
    Contestant("early-exit", {"draft_length": 4}),
    Contestant("lookup", {"draft_length": 8}),
)


def drafters_of(model: Model) -> Iterator[Contestant]:
    """Yields the lossless methods by which a model can draft for itself."""
    for each in _DRAFTERS:
        try:
            methods.build(each.method, model, **each.settings)
        except ValueError:
            continue
        yield each


def compare(
    model: Model, drafted: Contestant | None = None, *, new: int = NEW
) -> tuple[Runs, Runs]:
    """Continues each prompt greedily without and with drafts, in turns; returns both runs.

    Args:
      model: the model.
      drafted: the drafting method; None takes the first one that the model has.
      new: maximum number of bytes of each text.
    """
    drafted = drafted or next(drafters_of(model))
    contestants = [
        Contestant(each.method, _SHOWN | each.settings) for each in (timing.PLAIN, drafted)
    ]
    plain, own = timing.in_turns(model, PROMPTS, contestants, new=new, repeats=_REPEATS)
    return plain, own


def show(plain: Runs, drafted: Runs, console: Console | None = None) -> None:
    """Prints both texts, each byte coloured by who wrote it, and what the drafts gained."""
    console = console or Console(highlight=False, markup=False, emoji=False)
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        table.add_column(ratio=1)
    table.add_row(Text("plain decoding", "bold"), Text("with drafts", "bold"))
    table.add_row(_written(plain), _written(drafted))
    table.add_row(*(Text(_cost(runs), "dim") for runs in (plain, drafted)))
    shown: list[ConsoleRenderable] = [table, Text(""), Text(_sentence(plain, drafted))]
    if console.color_system and not console.no_color:
        shown.append(_legend())
    console.print(Group(*shown), width=min(console.width, _WIDTH))


def _cost(runs: Runs) -> str:
    seconds = statistics.median(runs.decode_seconds)
    return f"{runs.stats.rounds} passes of the model, {seconds:.2f} s"


def _written(runs: Runs) -> Text:
    """All prompts and texts of a column."""
    text = Text()
    for prompt, output in zip(PROMPTS, runs.outputs, strict=True):
        (result,) = output.results
        text.append(("\n" if text else "") + prompt.decode(), "bold")
        for shown, origin in _characters(result):
            text.append(shown, _STYLES[origin])
    return text


def _characters(result: Result) -> Iterator[tuple[str, Origin]]:
    """Yields each character, in hexadecimal if it is no text, with the origin of its first byte."""
    assert result.origins is not None
    place = 0
    for character in result.bytes.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        shown = character
        if not character.isprintable() and character not in "\n\t":
            shown = "".join(f"\\x{byte:02x}" for byte in result.bytes[place : place + size])
        yield shown, Origin(int(result.origins.kind[place]))
        place += size


def _sentence(plain: Runs, drafted: Runs) -> str:
    """What the drafts gained on this machine."""
    found = timing.compare(plain, drafted)
    same = "The same bytes"
    if found.same_outputs < found.rows:
        same = f"{found.same_outputs} of {found.rows} texts with the same bytes"
    kept = drafted.stats.to_dict()["acceptance"] or 0
    return (
        f"{same} in {drafted.stats.rounds} passes of the model instead of {plain.stats.rounds}, "
        f"{found.decode_speed.median:.2f} times as fast on this machine; {kept:.0%} of the drafted "
        "bytes were kept."
    )


def _legend() -> Text:
    text = Text("drafted and kept", _STYLES[Origin.DRAFTED])
    text.append(" | ", "default").append("its own, for a refused byte", _STYLES[Origin.CORRECTED])
    text.append(" | ", "default").append("its own, after a whole draft", _STYLES[Origin.FREE])
    return text
