"""How far a command has come."""

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator

import rich.console
import rich.progress


@contextlib.contextmanager
def progress_bar(name: str, total: int, known: int = 0) -> Iterator[Callable[..., None]]:
    """A bar on standard error, if that is a terminal, and the function that advances it."""
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(
        console=console,
        transient=True,
        disable=not console.is_terminal,  # it would leave an empty line there
        redirect_stdout=sys.stdout.isatty(),  # what is printed goes above the bar, or to its file
    ) as progress:
        bar = progress.add_task(name, total=total, completed=known)
        yield functools.partial(progress.advance, bar)
