"""`bytelax bench`: times decoding methods against plain decoding, on any model and prompts."""

import ast
import dataclasses
import functools
import itertools
import re
from pathlib import Path
from typing import Annotated, Any

import tyro

from bytelax.checked import check_least
from bytelax.commands import console, flags
from bytelax.options import named


@dataclasses.dataclass(frozen=True)
class Bench:
    """Flags of `bytelax bench`."""

    settings: tyro.conf.Positional[tuple[str, ...]] = ()
    """Methods to time, as METHOD or METHOD:option=value,...; by default those with which
    the model drafts by itself."""
    model: flags.Model = "tiny"
    loading: Annotated[flags.DecodingLoading, tyro.conf.arg(name="")] = flags.DecodingLoading()
    file: tyro.conf.UseAppendAction[tuple[Path, ...]] = ()
    """A file whose whole text is a prompt; by default a few built-in prompts."""
    max_new_bytes: int | None = None
    """Number of bytes to generate for each prompt; by default 256, or what the context holds."""
    batch: int = 1
    """Number of prompts in a batch; prompts are repeated to fill the last batch."""
    repeats: int = 5
    """Number of pairs of runs; reported speeds are medians of their ratios."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    json: bool = False
    """Print all results as JSON."""

    def __post_init__(self):
        for method, options in map(parsed, self.settings):  # before anything is loaded
            named(method, **{x: options[x] for x in options.keys() - {"window"}})


def run(command: Bench) -> None:
    """Times the methods."""
    import rich

    from bytelax import methods
    from bytelax.decode.sampling import Sampling
    from bytelax.loading import load
    from bytelax.measure import timing
    from bytelax.measure.demo import PROMPTS, drafters_of

    check_least(command, 1, "max_new_bytes", "batch", "repeats")
    wanted: list[tuple[Any, dict]] = [parsed(setting) for setting in command.settings]
    loaded = functools.cache(functools.partial(load, **command.loading.of_drafts))

    def ready(options):
        small = options.get("draft_model")
        return options | ({"draft_model": loaded(small)} if isinstance(small, str) else {})

    command.loading.check_drafts(any("draft_model" in options for _, options in wanted))
    prompts = [path.read_bytes() for path in command.file] or list(PROMPTS)
    whole = -(-len(prompts) // command.batch) * command.batch
    prompts = list(itertools.islice(itertools.cycle(prompts), whole))
    model = command.loading.load(command.model)
    if not wanted:
        wanted = [*drafters_of(model)]
    Sampling.of(1, temperature=command.temperature)
    for method, options in wanted:  # before anything is timed
        methods.build(method, model, **ready(options))
    room = model.config.max_bytes - 1 - max(map(len, prompts))
    new = command.max_new_bytes or min(256, max(room, 1))
    rows = []
    for method, options in wanted:
        with console.waiting(f"timing {method}, which is compiled first"):
            contestants = [timing.Contestant(method, ready(options))]
            (timed,) = timing.compare_with_plain(
                model, prompts, contestants, new=new, repeats=command.repeats,
                batch=command.batch, temperature=command.temperature,
            )  # fmt: skip
        rows.append({"method": method, **options, **timing.figures(timed)})
    if command.json:
        names = ("batch", "repeats", "temperature")
        how = {name: vars(command)[name] for name in names} | {"max_new_bytes": new}
        how["prompt_bytes"] = list(map(len, prompts))
        print(console.json_line(how | {"rows": rows}))
        return
    rich.print(_table(wanted, rows))
    lengths = sorted({len(prompt) for prompt in prompts})
    context = " to ".join(str(length) for length in dict.fromkeys((lengths[0], lengths[-1])))
    print(
        f"Batch {command.batch}, prompts of {context} bytes, {new} new ones, "
        f"temperature {command.temperature:g}. Speed: against plain decoding at the same batch "
        f"size, median and range of {command.repeats} pairs of runs; time to read the prompts is "
        "not counted."
    )


_COMMA = re.compile(r",(?![^(\[{]*[)\]}])")  # a comma that is not within brackets


def parsed(setting: str) -> tuple[str, dict]:
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
    return method, options


def _table(settings, rows):
    """Formats the figures in at most 80 columns."""
    import rich.box
    import rich.table

    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    table.add_column("method", overflow="fold")
    for name in ("exact", "bytes/s", "speed", "range", "kept", "bytes/round"):
        table.add_column(name, justify="right", no_wrap=True)
    for (method, options), row in zip(settings, rows, strict=True):
        shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())
        low, high = row["decode_speed_range"]
        accepted = row["acceptance"]
        table.add_row(
            f"{method} {shown}".strip(),
            "yes" if row["lossless"] else "no",
            f"{row['decode_bytes_per_second']:.0f}",
            f"{row['decode_speed']:.2f}x",
            f"{low:.2f}-{high:.2f}",
            "" if accepted is None else f"{accepted:.0%}",
            f"{row['bytes_per_round']:.2f}",
        )
    return table
