"""A progress bar for commands."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

import rich.console
import rich.progress


@contextlib.contextmanager
def progress_bar(name: str, total: int, known: int = 0) -> Iterator[Callable[..., None]]:
    """Shows a bar on standard error if that is a terminal; yields the function that advances it."""
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        console=console,
        transient=True,
        disable=not console.is_terminal,  # a bar would leave an empty line
        redirect_stdout=sys.stdout.isatty(),  # printed text goes above the bar
    ) as progress:
        bar = progress.add_task(name, total=total, completed=known)
        yield functools.partial(progress.advance, bar)
