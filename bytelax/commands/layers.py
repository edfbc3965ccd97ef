"""`bytelax layers`: finds the blocks that a byte transformer should skip to draft for itself."""

import dataclasses
from typing import Annotated

import tyro

from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.text_windows import text_windows
from bytelax.measure.layer_skip import Skipped, search


@dataclasses.dataclass(frozen=True)
class Layers:
    """Find blocks to skip with `--method layer-skip`, on sample text."""

    model: tyro.conf.Positional[str]
    """A byte transformer, as for `bytelax generate --model`."""
    text: tyro.conf.Positional[tuple[str, ...]]
    """Files, directories or globs of .txt, .py, .jsonl or .tsv, plain or gzipped."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
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

    def run(self) -> None:
        """Runs the command."""
        if self.most is not None and self.most < 1:
            raise ValueError(f"--most must be at least 1, got {self.most}")
        if not 2 <= self.window <= self.max_bytes:
            raise ValueError(f"--window must lie in 2..{self.max_bytes}, got {self.window}")
        windows, lengths = text_windows(self.text, self.window, self.max_bytes)
        whole = windows[lengths == self.window]
        if not len(whole):
            raise ValueError(f"there are no {self.window} bytes of text: give a smaller --window")
        steps = search(
            self.loading.load(self.model),
            whole,
            temperature=self.temperature,
            longest=self.longest,
            most=self.most,
            place_cost=self.place_cost,
        )
        best = max(steps, key=lambda skipped: skipped.speed)
        if self.json:
            sets = [dataclasses.asdict(skipped) for skipped in steps]
            print(json_line({"best": dataclasses.asdict(best), "sets": sets, "bytes": whole.size}))
            return
        for skipped in steps:
            print(_line(skipped))
        print(f"best: {flags(best)}")


def flags(skipped: Skipped) -> str:
    """Formats a set of skipped blocks as flags of `bytelax generate`."""
    words = ["--method layer-skip"]
    for name, value in skipped.options().items():
        numbers = value if isinstance(value, tuple) else (value,)
        if numbers:
            words.append(" ".join(["--" + name.replace("_", "-"), *map(str, numbers)]))
    return " ".join(words)


def _line(skipped):
    return (
        f"speed {skipped.speed:.2f}, {skipped.bytes_per_round:.2f} bytes a round, "
        f"drafting {skipped.drafting:.0%}: {flags(skipped)}"
    )
