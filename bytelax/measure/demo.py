"""`bytelax demo`: plain and drafted decoding write the same text."""

from collections.abc import Iterator

import rich
import rich.table
from rich.text import Text

from bytelax import methods
from bytelax.decode.record import Origin
from bytelax.measure import timing
from bytelax.measure.timing import Contestant, Runs
from bytelax.model import Model

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


def show(plain: Runs, drafted: Runs) -> None:
    """Prints both texts, coloured by who wrote each byte, and what drafting gained here."""
    table = rich.table.Table("plain decoding", "with drafts", box=None, width=_WIDTH)
    table.add_row(*map(_written, (plain, drafted)))
    found = timing.beside(plain, drafted)
    kept = drafted.stats.to_dict()["acceptance"] or 0
    legend = Text("drafted and kept", _STYLES[Origin.DRAFTED])
    legend.append(" | its own, for a refused byte", _STYLES[Origin.CORRECTED])
    legend.append(" | its own, after a whole draft", _STYLES[Origin.FREE])
    rich.print(table, legend)
    print(
        f"{found.same_outputs} of {found.rows} texts have the same bytes, in "
        f"{drafted.stats.rounds} passes of the model instead of {plain.stats.rounds}, "
        f"{found.decode_speed.median:.2f} times as fast on this machine; {kept:.0%} of the drafted "
        "bytes were kept."
    )


def _written(runs: Runs) -> Text:
    """The prompts and their continuations, each byte in the colour of its origin."""
    text = Text()
    for prompt, output in zip(PROMPTS, runs.outputs, strict=True):
        (result,) = output.results
        assert result.origins is not None
        text.append(("\n" if text else "") + prompt.decode(), "bold")
        place = 0
        for character in result.bytes.decode("utf-8", "surrogateescape"):
            style = _STYLES[Origin(int(result.origins.kind[place]))]
            text.append(character.encode("utf-8", "replace").decode(), style)
            place += len(character.encode("utf-8", "surrogateescape"))
    return text
