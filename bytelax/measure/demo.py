"""`bytelax demo`: plain and drafted decoding write the same text, as fast as they are here."""

import math
import time
from collections.abc import Iterator

from rich.console import Console, ConsoleRenderable, Group
from rich.live import Live
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
_FRAME = 1 / 30  # seconds
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
    """Prints both texts, on a terminal as they appear, and what they show.

    Each text appears at the speed at which it was written, alone; none is written meanwhile.
    """
    console = console or Console(highlight=False, markup=False, emoji=False)
    end = max(map(_seconds, (plain, drafted)))
    if console.is_terminal:
        begin = time.perf_counter()
        with Live(console=console, transient=True, auto_refresh=False) as live:
            while (now := time.perf_counter() - begin) < end:
                live.update(_frame(plain, drafted, now), refresh=True)
                time.sleep(_FRAME)
    shown: list[ConsoleRenderable] = [
        _frame(plain, drafted, math.inf),
        Text(""),
        Text(_sentence(plain, drafted)),
    ]
    if console.color_system and not console.no_color:
        shown.append(_legend())
    console.print(Group(*shown), width=min(console.width, _WIDTH))


def _seconds(runs: Runs) -> float:
    return sorted(runs.decode_seconds)[len(runs.decode_seconds) // 2]


def _frame(plain: Runs, drafted: Runs, now: float) -> Table:
    """Both columns at this time in seconds."""
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in range(2):
        table.add_column(ratio=1)
    table.add_row(Text("plain decoding", "bold"), Text("with drafts", "bold"))
    table.add_row(*(_written(runs, now) for runs in (plain, drafted)))
    table.add_row(*(Text(_progress(runs, now), "dim") for runs in (plain, drafted)))
    table.width = _WIDTH
    return table


def _progress(runs: Runs, now: float) -> str:
    seconds = _seconds(runs)
    done = min(now / seconds, 1)
    rounds = int(runs.stats.rounds * done)
    return f"{rounds} passes of the model, {min(now, seconds):.2f} s"


def _written(runs: Runs, now: float) -> Text:
    """What stands in a column at this time: whole rounds, each of the mean length."""
    left = now * runs.stats.rounds / _seconds(runs)  # rounds that have ended
    text = Text()
    for prompt, output in zip(PROMPTS, runs.outputs, strict=True):
        if left <= 0:
            break
        (result,) = output.results
        text.append(("\n" if text else "") + prompt.decode(), "bold")
        for ended, shown, origin in _characters(result):
            if ended <= left:
                text.append(shown, _STYLES[origin])
        left -= result.stats.rounds
    return text


def _characters(result: Result) -> Iterator[tuple[int, str, Origin]]:
    """Yields each character with the round, from 1, that ended with it, and where it is from.

    Where a character has several bytes, that is the origin of its first one. What is no text is in
    hexadecimal.
    """
    assert result.origins is not None
    kinds = [Origin(int(kind)) for kind in result.origins.kind]
    place = 0
    for character in result.bytes.decode("utf-8", "surrogateescape"):
        size = len(character.encode("utf-8", "surrogateescape"))
        last = place + size - 1
        ended = 1 + sum(kind != Origin.DRAFTED for kind in kinds[:last])
        if character.isprintable() or character in "\n\t":
            yield ended, character, kinds[place]
        else:
            for byte in result.bytes[place : last + 1]:
                yield ended, f"\\x{byte:02x}", kinds[place]
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
