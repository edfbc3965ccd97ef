"""`bytelax layers`: finds the blocks that a byte transformer should skip to draft for itself."""

import dataclasses

from bytelax.commands.json_line import json_line
from bytelax.commands.layers import Layers
from bytelax.commands.parsing import as_flag
from bytelax.commands.running.loading import load
from bytelax.commands.text_windows import text_windows
from bytelax.measure.layer_skip import Skipped, search


def run(flags: Layers) -> None:
    """Runs the command."""
    if flags.most is not None and flags.most < 1:
        raise ValueError(f"--most must be at least 1, got {flags.most}")
    if not 2 <= flags.window <= flags.max_bytes:
        raise ValueError(f"--window must lie in 2..{flags.max_bytes}, got {flags.window}")
    windows, lengths = text_windows(flags.text, flags.window, flags.max_bytes)
    whole = windows[lengths == flags.window]
    if not len(whole):
        raise ValueError(f"there are no {flags.window} bytes of text: give a smaller --window")
    steps = search(
        load(flags.model, flags.loading),
        whole,
        temperature=flags.temperature,
        longest=flags.longest,
        most=flags.most,
        place_cost=flags.place_cost,
    )
    best = max(steps, key=lambda skipped: skipped.speed)
    if flags.json:
        sets = [dataclasses.asdict(skipped) for skipped in steps]
        print(json_line({"best": dataclasses.asdict(best), "sets": sets, "bytes": whole.size}))
        return
    for skipped in steps:
        print(_line(skipped))
    print(f"best: {as_flags(best)}")


def as_flags(skipped: Skipped) -> str:
    """Formats a set of skipped blocks as flags of `bytelax generate`."""
    words = ["--method layer-skip"]
    for name, value in skipped.options().items():
        numbers = value if isinstance(value, tuple) else (value,)
        if numbers:
            words.append(" ".join([as_flag(name), *map(str, numbers)]))
    return " ".join(words)


def _line(skipped):
    return (
        f"speed {skipped.speed:.2f}, {skipped.bytes_per_round:.2f} bytes a round, "
        f"drafting {skipped.drafting:.0%}: {as_flags(skipped)}"
    )
