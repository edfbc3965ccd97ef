"""What commands print: JSON and progress."""

import contextlib
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any


def json_line(value: Any) -> str:
    """Formats a value as one line of JSON; NaN and infinities, which JSON lacks, become null."""
    return json.dumps(_finite(value), allow_nan=False)


def check_json(flags: Any, name: str) -> None:
    """Raises a ValueError if the flag of this name is given without `--json`."""
    if getattr(flags, name) and not flags.json:
        raise ValueError(f"--{name} is printed as JSON only: add --json")


@contextlib.contextmanager
def progress_bar(name: str, total: int, known: int = 0) -> Iterator[Callable[..., None]]:
    """Shows a bar on standard error if that is a terminal; yields the function that advances it."""
    import rich.console
    import rich.progress

    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a bar would leave an empty line
        redirect_stdout=sys.stdout.isatty(),  # printed text goes above the bar
    ) as progress:
        bar = progress.add_task(name, total=total, completed=known)
        yield functools.partial(progress.advance, bar)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
