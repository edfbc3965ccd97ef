"""`bytelax bench`: methods beside plain decoding, on a model and prompts of the user's."""

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
from bytelax.commands.loading import LoadFlags
from bytelax.commands.method_flags import check
from bytelax.demo.comparison import PROMPTS, settings_of
from bytelax.measure import timing

_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # none within brackets


@dataclasses.dataclass(frozen=True)
class Bench:
    """Time methods beside plain decoding at W = 1, in turns, in one process."""

    settings: tyro.conf.Positional[tuple[str, ...]] = ()
    """What to time, as METHOD or METHOD:option=value,...; by default what `bytelax demo` shows."""
    model: str = "tiny"
    """A bundled model, a directory (Orbax, Hugging Face or Meta layout), or a hub id."""
    loading: Annotated[LoadFlags, tyro.conf.arg(name="")] = LoadFlags()
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file whose whole text is a prompt; may be given several times. By default three prompts."""
    max_new_bytes: int = 256
    """Bytes to emit for each prompt."""
    batch: int = 1
    """Prompts that are continued together; they are repeated to fill the last batch."""
    repeats: int = 5
    """Pairs of runs; speeds are medians of their ratios."""
    temperature: float = 0.0
    """0 takes the likeliest byte."""
    json: bool = False
    """Print all figures as JSON."""

    def run(self) -> None:
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
    """ "blt-s:draft_length=8" as a method and its options."""
    method, _, rest = setting.partition(":")
    options = {}
    for part in filter(None, _COMMA.split(rest)):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{setting!r}: options are written option=value, got {part!r}")
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    methods.options_of(method)  # a misspelt method is told before anything is loaded
    return method, options
