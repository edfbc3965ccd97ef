"""`bytelax bench`: times decoding methods against plain decoding, on any model and prompts."""

import ast
import itertools
import re
from collections.abc import Sequence

import rich
import rich.box
import rich.table

from bytelax import methods
from bytelax.commands.bench import Bench
from bytelax.commands.json_line import json_line
from bytelax.commands.running import decoding
from bytelax.commands.running.loading import load
from bytelax.demo.comparison import PROMPTS, settings_of
from bytelax.measure import timing


def run(flags: Bench) -> None:
    """Runs the command."""
    for name in ("max_new_bytes", "batch", "repeats"):
        if getattr(flags, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(flags, name)}")
    wanted = [_parsed(setting) for setting in flags.settings]
    prompts = [path.read_bytes() for path in flags.file] or list(PROMPTS)
    whole = -(-len(prompts) // flags.batch) * flags.batch
    prompts = list(itertools.islice(itertools.cycle(prompts), whole))
    model = load(flags.model, flags.loading)
    if not wanted:
        wanted = [(setting.method, setting.options) for setting in settings_of(model)[0]]
    for method, options in wanted:
        decoding.check(model, method, options, temperature=flags.temperature)
    rows = []
    for method, options in wanted:
        timed = timing.beside_plain(
            model, prompts, method, options, new=flags.max_new_bytes, repeats=flags.repeats,
            batch=flags.batch, temperature=flags.temperature,
        )  # fmt: skip
        rows.append({"method": method, **options, **timing.figures(timed)})
    if flags.json:
        names = ("batch", "repeats", "temperature", "max_new_bytes")
        how = {name: getattr(flags, name) for name in names}
        print(json_line(how | {"prompt_bytes": list(map(len, prompts)), "rows": rows}))
        return
    rich.print(_table(wanted, rows))
    lengths = sorted({len(prompt) for prompt in prompts})
    context = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1])))
    print(
        f"Batch {flags.batch}, prompts of {context} bytes, {flags.max_new_bytes} new ones, "
        f"temperature {flags.temperature:g}. Speed: beside plain decoding at the same batch "
        f"size, median and range of {flags.repeats} pairs of runs; taking in the prompts is "
        "left out."
    )


_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # a comma that is not within brackets


def _table(settings: Sequence[tuple[str, dict]], rows: Sequence[dict]) -> rich.table.Table:
    """Formats the figures in at most 80 columns."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("method", overflow="fold")
    for name in ("exact", "bytes/s", "speed", "range", "kept", "bytes/round"):
        table.add_column(name, justify="right", no_wrap=True)
    for (method, options), row in zip(settings, rows, strict=True):
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())
        low, high = row["decode_speed_range"]
        accepted = row["acceptance"]
        table.add_row(
            f"{method} {told}".strip(),
            "yes" if row["lossless"] else "no",
            f"{row['decode_bytes_per_second']:.0f}",
            f"{row['decode_speed']:.2f}x",
            f"{low:.2f}-{high:.2f}",
            "" if accepted is None else f"{accepted:.0%}",
            f"{row['bytes_per_round']:.2f}",
        )
    return table


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
