"""`bytelax bench`: times decoding methods against plain decoding, on any model and prompts."""

import ast
import dataclasses
import itertools
import re
from pathlib import Path
from typing import Annotated

import rich
import rich.table
import tyro

from bytelax import methods
from bytelax.commands.json_line import json_line
from bytelax.commands.load_flags import LoadFlags
from bytelax.commands.method_flags import check
from bytelax.demo.comparison import PROMPTS, settings_of
from bytelax.measure import timing

_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # a comma that is not within brackets


@dataclasses.dataclass(frozen=True)
class Bench:
    """Time decoding methods against plain decoding, in alternating runs in one process."""

    settings: tyro.conf.Positional[tuple[str, ...]] = ()
    """Methods to time, as METHOD or METHOD:option=value,...; by default those of `bytelax demo`."""
    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file whose whole text is a prompt; by default three built-in prompts."""
    max_new_bytes: int = 256
    """Number of bytes to generate for each prompt."""
    batch: int = 1
    """Number of prompts in a batch; prompts are repeated to fill the last batch."""
    repeats: int = 5
    """Number of pairs of runs; reported speeds are medians of their ratios."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    json: bool = False
    """Print all results as JSON."""

    def run(self) -> None:
        """Runs the command."""
        for name in ("max_new_bytes", "batch", "repeats"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        wanted = [_parsed(setting) for setting in self.settings]
        prompts = [path.read_bytes() for path in self.file] or list(PROMPTS)
        whole = -(-len(prompts) // self.batch) * self.batch
        prompts = list(itertools.islice(itertools.cycle(prompts), whole))
        model = self.loading.load(self.model)
        if not wanted:
            wanted = [(setting.method, setting.options) for setting in settings_of(model)[0]]
        for method, options in wanted:
            check(model, method, options, temperature=self.temperature)
        rows = []
        for method, options in wanted:
            timed = timing.beside_plain(
                model, prompts, method, options, new=self.max_new_bytes, repeats=self.repeats,
                batch=self.batch, temperature=self.temperature,
            )  # fmt: skip
            rows.append({"method": method, **options, **timing.figures(timed)})
        if self.json:
            names = ("batch", "repeats", "temperature", "max_new_bytes")
            how = {name: getattr(self, name) for name in names}
            print(json_line(how | {"prompt_bytes": list(map(len, prompts)), "rows": rows}))
            return
        table = rich.table.Table(
            "method", "lossless", "bytes/s", "speed", "range", "accepted", "bytes a round"
        )
        for (method, options), row in zip(wanted, rows, strict=True):
            settings = ", ".join(f"{name} {value}" for name, value in options.items())
            low, high = row["decode_speed_range"]
            accepted = row["acceptance"]
            table.add_row(
                f"{method} {settings}".strip(),
                "yes" if row["lossless"] else "no",
                f"{row['decode_bytes_per_second']:.0f}",
                f"{row['decode_speed']:.2f}x",
                f"{low:.2f} to {high:.2f}",
                "" if accepted is None else f"{100 * accepted:.0f} %",
                f"{row['bytes_per_round']:.2f}",
            )
        rich.print(table)
        lengths = sorted({len(prompt) for prompt in prompts})
        context = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1])))
        print(
            f"Batch {self.batch}, prompts of {context} bytes, {self.max_new_bytes} new ones, "
            f"temperature {self.temperature:g}. Speed: beside plain decoding at the same batch "
            f"size, median and range of {self.repeats} pairs of runs; taking in the prompts is "
            "left out."
        )


def _parsed(setting: str) -> tuple[str, dict]:
    """Parses a setting such as "blt-s:draft_length=8" into a method and its options."""
    method, _, rest = setting.partition(":")
    options = {}
    for part in filter(None, _COMMA.split(rest)):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{setting!r}: options are written option=value, got {part!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            options[name] = value
    methods.options_of(method)  # reports a misspelt method before anything is loaded
    return method, options
