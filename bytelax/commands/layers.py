"""`bytelax layers`: finds the blocks that a byte transformer should skip to draft for itself."""

import dataclasses
from typing import Annotated

import tyro

from bytelax.commands import console, flags


@dataclasses.dataclass(frozen=True)
class Layers:
    """Flags of `bytelax layers`."""

    text: tyro.conf.Positional[tuple[str, ...]]
    """Files, directories or globs of .txt, .py, .jsonl or .tsv, plain or gzipped."""
    model: flags.Model = "tiny-lm"
    loading: Annotated[flags.QuantizedLoading, tyro.conf.arg(name="")] = flags.QuantizedLoading()
    temperature: float = 0.0
    """Sampling temperature to optimize for; 0 is greedy."""
    longest: int = 12
    """Maximum number of bytes to draft in a round."""
    most: int | None = None
    """Maximum number of half-blocks (an attention or a SwiGLU) to skip; by default no limit."""
    place_cost: float = 0.0
    """Cost that each drafted byte adds to a verification pass, as a share of that pass."""
    window: int = 256
    """Number of bytes in each window of text that the model reads."""
    max_bytes: int = 8192
    """Approximate number of bytes to measure on, evenly spread over the text."""
    json: bool = False
    """Print all sets of blocks as JSON."""


def run(command: Layers) -> None:
    """Searches, and prints what was found."""
    from bytelax.measure.layer_skip import search
    from bytelax.measure.text_windows import text_windows

    if command.most is not None and command.most < 1:
        raise ValueError(f"--most must be at least 1, got {command.most}")
    if not 2 <= command.window <= command.max_bytes:
        raise ValueError(f"--window must lie in 2..{command.max_bytes}, got {command.window}")
    windows, lengths = text_windows(command.text, command.window, command.max_bytes)
    whole = windows[lengths == command.window]
    if not len(whole):
        raise ValueError(f"there are no {command.window} bytes of text: give a smaller --window")
    steps = search(
        command.loading.load(command.model),
        whole,
        temperature=command.temperature,
        longest=command.longest,
        most=command.most,
        place_cost=command.place_cost,
    )
    best = max(steps, key=lambda skipped: skipped.speed)
    if command.json:
        sets = [dataclasses.asdict(skipped) for skipped in steps]
        found = {"best": dataclasses.asdict(best), "sets": sets, "bytes": whole.size}
        print(console.json_line(found))
        return
    for skipped in steps:
        print(
            f"speed {skipped.speed:.2f}, {skipped.bytes_per_round:.2f} bytes per round, "
            f"drafting {skipped.drafting:.0%}: {_as_flags(skipped)}"
        )
    print(f"best: {_as_flags(best)}")


def _as_flags(skipped):
    """A set of skipped blocks as flags of `bytelax generate`."""
    words = ["--method layer-skip"]
    for name, value in skipped.options().items():
        numbers = value if isinstance(value, tuple) else (value,)
        if numbers:
            words.append(" ".join([f"--{name.replace('_', '-')}", *map(str, numbers)]))
    return " ".join(words)
